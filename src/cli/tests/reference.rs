//! The page `docs/reference/cli.md`, generated from the command line's own definition. With RUNYARD_GOLDEN=write it is
//! rewritten.

use std::path::Path;

use clap::Command;

use super::shown::compare;
use crate::verbs::command;

const HEAD: &str = "\
# The command line

This page is made from the program's own help: change that, then run the test that names this page with
`RUNYARD_GOLDEN=write`. [contract.md](../contract.md#6-the-command-line-runyard) says what programs may rely on. Every
command takes the global options of `runyard` too.
";

fn page() -> String {
    let mut cli = command().term_width(100);
    cli.build();
    let mut page = String::from(HEAD);
    section(&mut page, &mut cli, "runyard");
    page
}

fn section(page: &mut String, command: &mut Command, name: &str) {
    let help = command.clone().term_width(100).render_long_help().to_string();
    let mut help: Vec<&str> = help.lines().map(str::trim_end).collect();
    if name.contains(' ') {
        leave_out_global(&mut help);
    }
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    let inner: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    for one in inner.iter().filter(|one| *one != "help") {
        let inner = command.find_subcommand_mut(one).expect("it was listed");
        section(page, inner, &format!("{name} {one}"));
    }
}

/// Leaves out the options common to all commands: they are documented under `runyard`.
fn leave_out_global(help: &mut Vec<&str>) {
    let Some(from) = help.iter().position(|line| *line == "Global options:") else { return };
    let is_next = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let to = help.iter().skip(from + 1).position(is_next).map_or(help.len(), |lines| from + 1 + lines);
    help.drain(from..to);
}

#[test]
fn the_reference_page_is_what_the_help_says() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md"));
    compare(path, &page());
}
