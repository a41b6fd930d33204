//! Serves the socket at which jobs expect Docker. It passes each request on to podman, and makes podman behave like
//! Docker where the two differ ([`super::docker`]). Each connection carries one request, so that no part of the
//! response has to be parsed. It runs with the engine's rights and can do no more than a job can.

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

/// Stack size that is sufficient for one connection.
const STACK: usize = 256 * 1024;

/// Starts to serve requests.
///
/// # Errors
/// The socket cannot be created.
pub(super) fn begin(place: &Path, podman: &'static Path) -> io::Result<()> {
    let listener = UnixListener::bind(place)?;
    set_permissions(place, Permissions::from_mode(0o600))?;
    thread::Builder::new().spawn(move || {
        for caller in listener.incoming().flatten() {
            // A client that is refused tries again; the client sees an error as a closed connection.
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

/// Creates the directories that the container mounts. Returns the changed description of the container, if there are
/// changes.
fn as_docker_makes(api: Api, body: &[u8], podman: &'static Path) -> Option<Vec<u8>> {
    // Podman rejects invalid JSON with its own error message.
    let mut container: Value = serde_json::from_slice(body).ok()?;
    for missing in sources(api, &container).iter().filter(|source| source.symlink_metadata().is_err()) {
        // If the job may not create it, podman reports that it is missing.
        let _ = DirBuilder::new().recursive(true).mode(0o755).create(missing);
    }
    let image =
        image_to_ask(api, &container).map(|name| format!("/v4.0.0/libpod/images/{}/json", escaped(name)));
    let image = image.and_then(|target| ask(podman, "GET", &target).ok());
    let own = image.map(|mut image| image["Healthcheck"].take()).filter(Value::is_object);
    let changed = set_health(api, &mut container, own.as_ref());
    changed.then(|| container.to_string().into_bytes())
}

/// Escapes a name as a part of a target; podman accepts names with slashes as they are.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Passes on podman's own response in the form that Docker's clients expect: an empty one on success.
fn no_content(mut caller: &UnixStream, mut engine: &UnixStream) -> io::Result<()> {
    let mut said = Vec::new();
    engine.read_to_end(&mut said)?;
    match said.get(9..12) {
        Some(b"200") => caller.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
        Some(_) | None => caller.write_all(&said),
    }
}

/// Copies data in both directions, until podman closes the connection. If the client closes its sending side, this is
/// passed on: it ends the input of a command.
fn both_ways(caller: &UnixStream, engine: &UnixStream) -> io::Result<()> {
    let (mut from, mut to) = (caller.try_clone()?, engine.try_clone()?);
    let asking = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    let said = io::copy(&mut &*engine, &mut &*caller);
    // If the client is gone, podman must notice.
    let _ = engine.shutdown(Shutdown::Both);
    let _ = caller.shutdown(Shutdown::Both);
    // The shutdown above ends the thread.
    let _ = asking.join();
    said.map(drop)
}

/// Sends a request of podman's own API and reads the complete response.
///
/// # Errors
/// Podman does not respond, or responds with another status than success.
pub(super) fn ask(podman: &Path, method: &str, target: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(podman)?;
    stream.write_all(question(method, target).as_bytes())?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    answered(&said)
}

/// Formats a request of HTTP/1.0, where a response ends with its connection.
pub(super) fn question(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.0\r\nHost: engine\r\n\r\n")
}

/// Returns the body of a successful response.
pub(super) fn answered(said: &[u8]) -> io::Result<Value> {
    let (head, body) = said.split_at(end_of_head(said).ok_or(io::ErrorKind::UnexpectedEof)?);
    if head.get(9..10) != Some(b"2") {
        return Err(io::Error::other(String::from_utf8_lossy(body).trim().to_owned()));
    }
    Ok(serde_json::from_slice(body).unwrap_or(Value::Null))
}
