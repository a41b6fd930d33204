//! How the program reaches AWS from a person's desk: through a proxy, at the endpoints that AWS's settings name, and
//! with credentials from where the AWS command line has them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cli::yard::command;

/// A proxy that takes one call and says no; what it was asked for.
fn proxy() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").unwrap();
        line
    });
    (address, asked)
}

/// `runyard get pools` at AWS itself, which only the proxy could reach.
fn asking(settings: &[(&str, &str)]) -> (Command, std::thread::JoinHandle<String>) {
    let (address, asked) = proxy();
    let mut command = command(&["get", "pools"]);
    command.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_ENDPOINT_URL_DYNAMODB");
    command.envs([("HTTPS_PROXY", address.as_str()), ("AWS_REGION", "us-west-2"), ("AWS_MAX_ATTEMPTS", "1")]);
    command.envs(settings.iter().copied());
    (command, asked)
}

#[test]
fn aws_is_reached_through_a_proxy_at_the_endpoints_that_its_settings_name() {
    for (setting, host) in [
        ("AWS_PROFILE", "dynamodb.us-west-2.amazonaws.com"),
        ("AWS_USE_FIPS_ENDPOINT", "dynamodb-fips.us-west-2.amazonaws.com"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "dynamodb.us-west-2.api.aws"),
    ] {
        let value = if setting == "AWS_PROFILE" { "default" } else { "true" };
        let (mut command, asked) =
            asking(&[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), (setting, value)]);
        let mut child = command.spawn().unwrap();
        assert_eq!(asked.join().unwrap().trim(), format!("CONNECT {host}:443 HTTP/1.1"), "{setting}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn credentials_come_from_a_process_or_a_sign_in_that_a_profile_names() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    let words = "{\"Version\": 1, \"AccessKeyId\": \"AKIDPROCESS\", \"SecretAccessKey\": \"test\"}";
    let script = home.path().join("credentials");
    std::fs::write(&script, words).unwrap();
    std::fs::write(
        &config,
        format!(
            "[profile process]\ncredential_process = cat {}\n[profile desk]\nsso_session = desk\n\
             sso_account_id = 123456789012\nsso_role_name = yard\n[sso-session desk]\nsso_region = us-west-2\n\
             sso_start_url = https://example.awsapps.com/start\nsso_registration_scopes = sso:account:access\n\
             [profile login]\nlogin_session = arn:aws:iam::123456789012:user/anna\n",
            script.display()
        ),
    )
    .unwrap();
    let with = |profile: &str| {
        let (mut command, asked) = asking(&[
            ("AWS_CONFIG_FILE", config.to_str().unwrap()),
            ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("HOME", home.path().to_str().unwrap()),
            ("AWS_PROFILE", profile),
        ]);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        (command, asked)
    };
    let (mut command, asked) = with("process");
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    assert!(
        asked.join().unwrap().contains("dynamodb.us-west-2"),
        "with credentials there is a call to be made"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // Nobody has signed in: it is said so, and not that this program cannot.
    for profile in ["desk", "login"] {
        let (mut command, asked) = with(profile);
        drop(asked);
        let ended = command.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{profile}: {said}");
        assert!(!said.contains("feature"), "{profile}: {said}");
    }
}

/// The metadata service as it is where there is none: it takes connections and says nothing. How many there were.
fn silence() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            counted.fetch_add(1, Ordering::SeqCst);
            open.push(stream);
        }
    });
    (address, count)
}

/// Each attempt waits 300 ms at most: the first mistakes are answered within a second.
#[test]
fn where_no_metadata_answers_it_is_asked_twice_at_most_and_the_mistake_is_named() {
    let home = tempfile::tempdir().unwrap();
    for (region, told) in [("", "no AWS region is set"), ("us-west-2", "AWS credentials")] {
        let (address, count) = silence();
        let mut command = command(&["get", "pools"]);
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_REGION", "AWS_DEFAULT_REGION"]
            .into_iter()
            .chain(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"])
        {
            command.env_remove(name);
        }
        command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", address).env("HOME", home.path());
        if !region.is_empty() {
            command.env("AWS_REGION", region);
        }
        let ended = command.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains(told), "{told}: {said}");
        assert!(!said.contains("dispatch") && said.lines().count() <= 3, "{said}");
        // A connection may serve two attempts.
        let asked = count.load(Ordering::SeqCst);
        assert!((1..=2).contains(&asked), "{told}: {asked}");
    }
}
