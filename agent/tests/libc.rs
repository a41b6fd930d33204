//! On which systems does the agent start? On those whose C library is as old as the page for operators says.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

use std::path::Path;

/// The oldest C library that the page promises to do: that of Amazon Linux 2023; Ubuntu 22.04 has 2.35.
const OLDEST: (u32, u32) = (2, 34);

/// The versions of the C library that a program's symbols ask for, as they stand in its dynamic strings.
fn versions(program: &[u8]) -> Vec<(u32, u32)> {
    let mark = b"GLIBC_";
    let starts = program.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    let text = |at: usize| {
        let rest = &program[at + mark.len()..];
        let end =
            rest.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'.')).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    starts
        .filter_map(|(at, _)| {
            let text = text(at);
            let mut numbers = text.split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect()
}

#[test]
fn the_agent_starts_on_every_system_that_the_page_names() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_runyard-agent")).unwrap();
    // A static one asks for none.
    if let Some(newest) = versions(&program).into_iter().max() {
        assert!(newest <= OLDEST, "the agent needs glibc {newest:?}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    // Wherever its lines are broken.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (major, minor) = OLDEST;
    let promised =
        format!("glibc {major}.{minor} or newer, as Amazon Linux 2023, Ubuntu 22.04 and Debian 12 have it");
    assert!(page.contains(&promised), "docs/operations.md does not say {promised:?}");
}
