//! `runyard doctor --preflight`, as a person runs it on the first day.

use serde_json::{Value, json};

use crate::init::site::{Site, spec};
use runyard_support::peer::SUBNETS;

/// A site with its table and templates, and one class that names a role and a subnet.
fn made() -> Site {
    let site = Site::with_peer();
    let config = std::fs::read_to_string(site.path("runyard.toml")).unwrap();
    // Nobody listens there: no test asks a server of others.
    let package = "http://127.0.0.1:9/actions-runner.tar.gz";
    site.file(
        "runyard.toml",
        &config.replace("https://example.com/actions-runner-linux-x64.tar.gz", package),
    );
    let mut class = spec("small", "ami-0123456789abcdef0");
    class["launch"]["subnetIds"] = json!([SUBNETS[0].0]);
    class["launch"]["instanceProfile"] = json!("yard-machine");
    site.pools(&[class]);
    site.init(&[], 0);
    let pools = site.path("pools.json");
    site.runs(&["apply", "-f", &pools], 0);
    site
}

/// `doctor --preflight` with these further arguments, as JSON.
fn preflight(site: &Site, more: &[&str]) -> Value {
    let config = site.path("runyard.toml");
    let mut arguments = vec!["doctor", "--config", &config, "-o", "json", "--preflight"];
    arguments.extend(more);
    // No operator ever ran here, which is a finding too.
    let told = site.runs(&arguments, 1).stdout;
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn states<'a>(told: &'a Value, check: &str) -> Vec<&'a str> {
    let checks = told["checks"].as_array().expect("checks");
    let named = checks.iter().filter(|one| one["check"].as_str().is_some_and(|what| what.starts_with(check)));
    named.map(|one| one["state"].as_str().expect("a state")).collect()
}

#[tokio::test]
async fn a_preflight_tells_what_it_looked_at_and_what_it_could_not() {
    let site = made();
    let told = preflight(&site, &["small"]);
    assert_eq!(states(&told, "dry run of a machine"), ["good", "good"], "{told:#}");
    assert_eq!(states(&told, "image"), ["good"]);
    assert_eq!(states(&told, "quotas"), ["unchecked"]);
    // The package of the configuration is at an address that nobody here answers for.
    assert_eq!(states(&told, "runner package"), ["wrong"]);
    let found = told["items"].as_array().unwrap();
    let package = found.iter().find(|one| one["reason"] == "Preflight").expect("a finding");
    assert!(package["message"].as_str().unwrap().starts_with("runner package: "), "{package}");
    assert!(package["fix"].as_str().unwrap().contains("agent.runner_url"), "{package}");
    assert!(site.peer.as_ref().unwrap().world().instances.is_empty());
}

#[tokio::test]
async fn roles_and_quotas_are_asked_for_by_the_program_aws() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = made();
    let answers = "#!/bin/sh\ncase \"$1 $4\" in\n\"iam AWSServiceRoleForEC2Fleet\") echo 'An error occurred \
                   (NoSuchEntity): there is none' >&2; exit 254 ;;\n*) echo 2.0 ;;\nesac\n";
    let program = site.file("aws", answers);
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let told = preflight(&site, &["small"]);
    assert_eq!(states(&told, "EC2's own role"), ["wrong"], "{told:#}");
    assert_eq!(states(&told, "quotas"), ["wrong"], "{told:#}");
    let found = told["items"].as_array().unwrap();
    let fixes: Vec<&str> = found.iter().filter_map(|one| one["fix"].as_str()).collect();
    assert!(fixes.iter().any(|fix| fix.contains("create-service-linked-role")), "{fixes:?}");
    assert!(fixes.iter().any(|fix| fix.contains("request-service-quota-increase")), "{fixes:?}");
}

#[tokio::test]
async fn a_launch_that_would_be_refused_is_a_finding_with_its_remedy() {
    let site = made();
    site.peer.as_ref().unwrap().rules(|rules| rules.forbidden.extend(["volume"]));
    let told = preflight(&site, &[]);
    assert_eq!(states(&told, "dry run of a machine, on-demand"), ["wrong"], "{told:#}");
    let found = told["items"].as_array().unwrap();
    let refused = found.iter().find(|one| one["message"].as_str().unwrap().contains("UnauthorizedOperation"));
    let refused = refused.expect("a finding");
    assert_eq!((&refused["reason"], &refused["record"]), (&json!("Preflight"), &json!("pool#small / pool")));
    assert!(refused["fix"].as_str().unwrap().contains("operator.json"), "{refused}");
}

#[tokio::test]
async fn a_preflight_names_the_pools_there_are_when_one_is_misspelt() {
    let site = made();
    let config = site.path("runyard.toml");
    let ended = site.runs(&["doctor", "--config", &config, "--preflight", "smal"], 1);
    assert!(ended.stderr.contains("small"), "{ended:?}");
    let ended = site.runs(&["doctor", "--preflight", "small"], 2);
    assert!(ended.stderr.contains("--config"), "{ended:?}");
}
