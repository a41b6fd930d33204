//! Rows in columns: a message alone is cut to what the width leaves.

use unicode_width::UnicodeWidthStr as _;

use super::format::plain;

/// The one column that may be cut.
const MESSAGE: &str = "MESSAGE";
/// As little of a message as is shown, in columns: a line runs over rather than say nothing.
pub(super) const LEAST: usize = 20;

/// Rows in columns two spaces apart, the message cut to what the width leaves.
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

/// Text of at most so many columns.
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
