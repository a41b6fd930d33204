//! The part of a machine's console that is of interest to people: the lines that the first boot and the agent write
//! there, each beginning with `runyard: `. All other lines come from the kernel and other programs.

/// The prefix of each of our lines.
const MARK: &str = "runyard: ";
/// The beginning of the line that explains why a first boot failed; the agent writes it.
const BOOT_FAILED: &str = "the first boot failed";
/// The beginning of a machine's last line.
const POWER_OFF: &str = "powers off";
/// Longest line that is kept, in characters.
const LONGEST: usize = 300;
/// The prefixes of credentials that a script may have printed (GitHub's, AWS's, keys in PEM form, signed tokens).
const SECRETS: [&str; 12] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "-----BEGIN",
    "AKIA",
    "ASIA",
    "eyJ",
    "Bearer",
    "X-Amz-",
];

/// Returns the last message on a machine's console, without the mark: why its first boot failed, where nothing but its
/// power-off follows, or else the last of our lines; none where there is none.
///
/// # Guarantees
/// At most 300 characters, none of them a control character, and no word that looks like a credential.
pub fn last_console_line(console: &str) -> Option<String> {
    let mut lines = console_lines(console);
    let last = lines.pop()?;
    let why = lines.into_iter().rfind(|line| !line.starts_with(POWER_OFF));
    let why = why.filter(|line| line.starts_with(BOOT_FAILED) && last.starts_with(POWER_OFF));
    Some(why.unwrap_or(last))
}

/// Lists our lines on a console, the oldest first, each in the form of [`last_console_line`].
pub fn console_lines(console: &str) -> Vec<String> {
    console.split(['\n', '\r']).filter_map(ours).filter(|line| !line.is_empty()).collect()
}

/// Returns whether a line explains why a machine ends, so that no other line follows it.
pub(crate) fn says_why(line: &str) -> bool {
    line.starts_with(POWER_OFF) || line.starts_with(BOOT_FAILED)
}

/// Returns the text of a line after our mark: cloud-init and the kernel may put words of their own before it.
fn ours(line: &str) -> Option<String> {
    let (_, said) = line.rsplit_once(MARK)?;
    let said = without_sequences(said);
    let words = said.split_whitespace().map(|word| {
        let secret = SECRETS.iter().find_map(|secret| word.find(secret));
        secret.map_or_else(|| word.to_owned(), |at| format!("{}***", &word[..at]))
    });
    let said = words.collect::<Vec<_>>().join(" ");
    Some(said.chars().take(LONGEST).collect())
}

/// Removes everything that a terminal would interpret: escape sequences as a whole, then every other control character.
fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            if rest.next_if_eq(&'[').is_some() {
                // A control sequence ends with its first letter (ECMA-48: 0x40 to 0x7e).
                rest.by_ref().find(|c| ('@'..='~').contains(c));
            }
        } else if !c.is_control() && !hidden(c) {
            plain.push(c);
        } else {
            plain.push(' ');
        }
    }
    plain
}

/// Returns whether a character reverses or hides the text around it.
const fn hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_our_lines_is_found_among_the_kernels() {
        let console = "[    0.0] Linux version 6.8\r\n\
                       runyard: first boot installs the agent\r\n\
                       [   12.1] cloud-init[812]: runyard: powers off: first boot failed while it installed the agent (127)\r\n\
                       [   13.0] reboot: Power down\r\n";
        let last = "powers off: first boot failed while it installed the agent (127)";
        assert_eq!(last_console_line(console), Some(last.into()));
        assert_eq!(console_lines(console), ["first boot installs the agent", last]);
    }

    #[test]
    fn why_a_first_boot_failed_says_more_than_the_power_off_after_it() {
        let why =
            "the first boot failed: nft: No such file or directory: jobs could take this machine's role";
        let off = "powers off: first boot failed while it installed the agent (1)";
        let console =
            |lines: &[&str]| lines.iter().map(|line| format!("runyard: {line}\n")).collect::<String>();
        for (lines, last) in [
            (&["first boot installs the agent", why, off][..], why),
            (&[why, off, off], why),
            (&[why, "first boot installs the agent", off], off),
            (&[off, why], why),
        ] {
            assert_eq!(last_console_line(&console(lines)).as_deref(), Some(last), "{lines:?}");
        }
    }

    #[test]
    fn a_console_without_a_line_of_ours_says_nothing() {
        for console in ["", "Linux version 6.8\n", "runyard:\n", "runyard: \n", "runyard: \u{1b}[0m\r\n"] {
            assert_eq!(last_console_line(console), None, "{console:?}");
        }
    }

    #[test]
    fn a_line_carries_nothing_that_a_terminal_obeys_and_is_bounded() {
        let console = "runyard: no route\u{1b}[2J to\u{7} AWS\u{202e}\u{0}here\n";
        assert_eq!(last_console_line(console), Some("no route to AWS here".into()));
        let long = last_console_line(&format!("runyard: {}\n", "ü".repeat(5000))).unwrap();
        assert_eq!(long.chars().count(), LONGEST);
        assert_eq!(
            last_console_line("runyard: cut off in a sequence \u{1b}[3"),
            Some("cut off in a sequence".into())
        );
    }

    #[test]
    fn a_line_carries_no_word_that_looks_like_a_credential() {
        let console =
            "runyard: the first boot failed: curl -H token=ghs_0123456789abcdef AKIAIOSFODNN7EXAMPLE\n";
        assert_eq!(last_console_line(console), Some("the first boot failed: curl -H token=*** ***".into()));
    }
}
