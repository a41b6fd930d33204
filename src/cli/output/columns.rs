//! Formats rows in columns; only the message is cut to the width of the terminal.

use unicode_width::UnicodeWidthStr as _;

use super::format::plain;

/// The only column that may be cut.
const MESSAGE: &str = "MESSAGE";
/// The minimum width of the message column: a line exceeds the terminal's width rather than show less of it.
pub(super) const LEAST: usize = 20;

/// Formats rows in columns two spaces apart and cuts the message to the remaining width.
pub(crate) fn lined_up(width: Option<usize>, heads: &[String], mut rows: Vec<Vec<String>>) -> String {
    rows.iter_mut().flatten().for_each(|cell| *cell = plain(cell));
    let widest = |rows: &[Vec<String>], column: usize| {
        rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.width())).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..heads.len()).map(|column| widest(&rows, column)).collect();
    let message = heads.iter().position(|head| head == MESSAGE);
    if let (Some(width), Some(message)) = (width, message) {
        let others: usize = widths.iter().sum::<usize>() - widths[message] + 2 * (widths.len() - 1);
        let most = width.saturating_sub(others).max(LEAST);
        rows.iter_mut().for_each(|row| row[message] = cut(&row[message], most));
        widths[message] = widths[message].min(most);
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let room = width.saturating_sub(cell.width());
            format!("{cell}{:room$}", "")
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Cuts text to at most `most` columns.
fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut cut = String::new();
    for char in text.chars() {
        if cut.width() + 2 > most {
            break;
        }
        cut.push(char);
    }
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_wide_characters_is_cut_by_what_it_takes() {
        assert_eq!(cut("機械が足りない", 7), "機械が…");
        assert_eq!(cut("enough", 6), "enough");
    }
}
