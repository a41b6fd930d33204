//! What answers where jobs look for Docker: it passes each request on to podman, and has podman do what Docker does
//! where that is another thing ([`super::docker`]). Each connection carries one request, so that nothing of the answer has
//! to be understood. It runs as the engine does and can do no more than a job can.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use serde_json::Value;

use super::docker::{Api, Call, image_to_ask, set_health, sources};
use super::message::{Request, end_of_head};

/// Enough for what one connection needs.
const STACK: usize = 256 * 1024;

/// Begins to answer.
///
/// # Errors
/// The socket cannot be made.
pub(super) fn begin(place: &Path, podman: &'static Path) -> io::Result<()> {
    let listener = UnixListener::bind(place)?;
    set_permissions(place, Permissions::from_mode(0o600))?;
    thread::Builder::new().spawn(move || {
        for caller in listener.incoming().flatten() {
            // Who is refused asks again; an error is the client's to see, by a connection that ends.
            let answering = move || drop(answer(&caller, podman));
            let _ = thread::Builder::new().stack_size(STACK).spawn(answering);
        }
    })?;
    Ok(())
}

fn answer(caller: &UnixStream, podman: &'static Path) -> io::Result<()> {
    let mut from = caller;
    let Some(mut request) = Request::read(&mut from)? else { return Ok(()) };
    let mut without_report = false;
    match Call::of(&request.method, &request.target) {
        Call::Create(api) => {
            let body = request.whole_body(&mut from)?;
            if let Some(changed) = as_docker_makes(api, &body, podman) {
                request.set_body(changed);
            }
        }
        Call::Remove(api, target) => {
            without_report = api == Api::Docker;
            request.target = target;
        }
        Call::Wait(target) => request.target = target,
        Call::Other => {}
    }
    let mut engine = UnixStream::connect(podman)?;
    engine.write_all(&request.into_bytes())?;
    if without_report {
        return no_content(caller, &engine);
    }
    both_ways(caller, &engine)
}

/// Makes the directories that it is to see, and says how the container is made then, if otherwise.
fn as_docker_makes(api: Api, body: &[u8], podman: &'static Path) -> Option<Vec<u8>> {
    // What is no JSON, podman refuses in its own words.
    let mut container: Value = serde_json::from_slice(body).ok()?;
    for missing in sources(api, &container).iter().filter(|source| source.symlink_metadata().is_err()) {
        // Where the job may not make one, podman says that there is none.
        let _ = DirBuilder::new().recursive(true).mode(0o755).create(missing);
    }
    let image =
        image_to_ask(api, &container).map(|name| format!("/v4.0.0/libpod/images/{}/json", escaped(name)));
    let image = image.and_then(|target| ask(podman, "GET", &target).ok());
    let own = image.map(|mut image| image["Healthcheck"].take()).filter(Value::is_object);
    let changed = set_health(api, &mut container, own.as_ref());
    changed.then(|| container.to_string().into_bytes())
}

/// As a part of a target; podman takes names with slashes as they are.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Podman's own answer, as Docker's clients expect it: nothing where all went well.
fn no_content(mut caller: &UnixStream, mut engine: &UnixStream) -> io::Result<()> {
    let mut said = Vec::new();
    engine.read_to_end(&mut said)?;
    match said.get(9..12) {
        Some(b"200") => caller.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
        Some(_) | None => caller.write_all(&said),
    }
}

/// Carries what both say, until podman has nothing more to say. That a client says nothing more is passed on as it is:
/// so ends the input of a command.
fn both_ways(caller: &UnixStream, engine: &UnixStream) -> io::Result<()> {
    let (mut from, mut to) = (caller.try_clone()?, engine.try_clone()?);
    let asking = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    let said = io::copy(&mut &*engine, &mut &*caller);
    // Where the client is gone, podman is to notice.
    let _ = engine.shutdown(Shutdown::Both);
    let _ = caller.shutdown(Shutdown::Both);
    // It ends by what was just shut.
    let _ = asking.join();
    said.map(drop)
}

/// Asks podman something of its own API, to the end of its answer.
///
/// # Errors
/// It does not answer, or with something else than success.
pub(super) fn ask(podman: &Path, method: &str, target: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(podman)?;
    stream.write_all(question(method, target).as_bytes())?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    answered(&said)
}

/// By the old version of the protocol, in which an answer ends with its connection.
pub(super) fn question(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.0\r\nHost: engine\r\n\r\n")
}

/// What an answer holds, if it is one of success.
pub(super) fn answered(said: &[u8]) -> io::Result<Value> {
    let (head, body) = said.split_at(end_of_head(said).ok_or(io::ErrorKind::UnexpectedEof)?);
    if head.get(9..10) != Some(b"2") {
        return Err(io::Error::other(String::from_utf8_lossy(body).trim().to_owned()));
    }
    Ok(serde_json::from_slice(body).unwrap_or(Value::Null))
}
