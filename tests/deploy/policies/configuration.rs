//! Is everything in `config/` something that can be read, by whoever is to read it?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use runyard_operator::config::Config;
use serde_json::Value;

use crate::policies::documents::{NAMES, config};

fn files(at: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, into) } else { into.push(path) }
    }
}

/// Whether each line that is no comment is a SHA-256 and an https address.
fn programs(text: &str) -> Result<(), String> {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (digest, address) = line.split_once("  ").ok_or_else(|| format!("no address: {line}"))?;
        let hexadecimal =
            digest.len() == 64 && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !hexadecimal || !address.starts_with("https://") {
            return Err(format!("no digest and address: {line}"));
        }
    }
    Ok(())
}

#[test]
fn every_file_is_of_a_kind_that_is_checked_and_can_be_read() {
    let mut all = Vec::new();
    files(&config(), &mut all);
    for path in &all {
        let text = std::fs::read_to_string(path).unwrap();
        let read = match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("json") => serde_json::from_str::<Value>(&text).map(|_| ()).map_err(|e| e.to_string()),
            Some("yaml" | "yml") => {
                serde_norway::from_str::<Value>(&text).map(|_| ()).map_err(|e| e.to_string())
            }
            Some("toml") if path.ends_with("prices.toml") => {
                runyard_operator::prices::load(path).map(|_| ()).map_err(|e| format!("{e:?}"))
            }
            Some("toml") => {
                // Complete but for the credential, which nobody can know.
                let kind = [("RUNYARD_GITHUB__KIND".to_owned(), "none".to_owned())];
                Config::load(Some(path), kind.into_iter()).map(|_| ()).map_err(|e| e.to_string())
            }
            Some("tf" | "hcl") => {
                text.parse::<hcl_edit::structure::Body>().map(|_| ()).map_err(|e| e.to_string())
            }
            // `.ci/lint`, the agent's tests and `agent/src/install.rs`.
            Some("sh" | "nft" | "iptables" | "ip6tables" | "service" | "timer" | "md") => Ok(()),
            // Scripts by their first line: `.ci/lint` and `.ci/actions`.
            None if text.starts_with("#!") => Ok(()),
            // What `config/actions/program` fetches: comments, and a digest with an address a line.
            None if path.ends_with("actions/programs") => programs(&text),
            // `.ci/docs` and the release's scripts read it: comments, and a repository.
            None if path.ends_with("release/owner") => Ok(()),
            // The tests of `check-workflow` read every line of it.
            None if path.ends_with("packer/tools") => Ok(()),
            other => Err(format!("nobody checks files of kind {other:?}")),
        };
        assert_eq!(read, Ok(()), "{}", path.display());
    }
}

#[test]
fn every_policy_is_in_the_tests_and_every_statement_has_its_reason() {
    let mut policies = Vec::new();
    files(&config().join("iam"), &mut policies);
    let names: BTreeSet<String> = policies
        .iter()
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "json"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, NAMES.map(str::to_owned).into());
    let reasons = std::fs::read_to_string(config().join("iam/README.md")).unwrap();
    for name in NAMES {
        let (_, section) = reasons.split_once(&format!("\n**{name}**\n")).unwrap_or_else(|| panic!("{name}"));
        let section = section.split("\n**").next().unwrap();
        let statements = crate::policies::documents::document(name)["Statement"].as_array().unwrap().clone();
        for statement in &statements {
            let sid = statement["Sid"].as_str().expect("every statement has a Sid");
            assert!(section.contains(&format!("`{sid}`")), "{name}: no reason for {sid}");
        }
    }
}
