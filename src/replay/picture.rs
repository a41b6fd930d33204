//! Draws a comparison as SVG: idle machines by the hour above, and below the share of requests that were ready within
//! each wait.

use std::fmt::Write as _;

use crate::outcome::Outcome;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 50.0;
const COLOURS: [&str; 2] = ["#4477aa", "#cc6677"];

/// Draws one or two outcomes, the base first.
pub fn picture(base: &Outcome, change: Option<&Outcome>) -> String {
    let all: Vec<&Outcome> = std::iter::once(base).chain(change).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        WIDTH + LEFT + 20.0,
        2.0 * HEIGHT + 110.0
    );
    for (at, name) in ["as it is configured", "with the change"].iter().take(all.len()).enumerate() {
        let (x, colour) = (LEFT + 170.0 * at as f64, COLOURS[at]);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"16\" fill=\"{colour}\">{name}</text>");
    }
    let idle: Vec<Vec<f64>> =
        all.iter().map(|one| one.live.iter().map(|(idle, _)| f64::from(*idle)).collect()).collect();
    let waits: Vec<Vec<f64>> = all.iter().map(|one| by_share(one)).collect();
    panel(&mut svg, 40.0, "idle machines, by the hour", &idle);
    panel(&mut svg, HEIGHT + 90.0, "wait in seconds, by the share of requests (0 to 99 %)", &waits);
    svg.push_str("</svg>\n");
    svg
}

/// Returns the waits at each percentile.
fn by_share(outcome: &Outcome) -> Vec<f64> {
    let waits = outcome.waits();
    (0..100).map(|part| crate::outcome::percentile(&waits, part).as_secs_f64()).collect()
}

fn panel(svg: &mut String, top: f64, title: &str, lines: &[Vec<f64>]) {
    let most = lines.iter().flatten().copied().fold(1.0, f64::max);
    let bottom = top + HEIGHT;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" fill=\"#333\">{title}</text>", top - 6.0);
    let _ =
        writeln!(svg, "<path d=\"M{LEFT} {top}V{bottom}H{}\" stroke=\"#999\" fill=\"none\"/>", LEFT + WIDTH);
    let _ = writeln!(svg, "<text x=\"4\" y=\"{}\" fill=\"#333\">{most:.0}</text>", top + 10.0);
    let _ = writeln!(svg, "<text x=\"4\" y=\"{bottom}\" fill=\"#333\">0</text>");
    for (line, colour) in lines.iter().zip(COLOURS) {
        let step = WIDTH / line.len().saturating_sub(1).max(1) as f64;
        let points: Vec<String> = line
            .iter()
            .enumerate()
            .map(|(at, value)| {
                format!("{:.1},{:.1}", LEFT + step * at as f64, bottom - HEIGHT * value / most)
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"{colour}\" fill=\"none\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
    }
}
