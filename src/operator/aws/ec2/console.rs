//! Reads the consoles of machines. EC2 has two responses: the current screen, on types that run on Nitro and while the
//! machine exists; and the output posted some minutes after the machine last began or ended, for at least an hour (EC2
//! API reference, "GetConsoleOutput").

use aws_sdk_ec2::Client;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::errors::{CallError, Meaning};
use crate::model::InstanceId;
use crate::ports::ComputeError;

/// Maximum part of a console that is read, in bytes (EC2 keeps 64 KiB).
const MOST: usize = 64 << 10;

/// Returns a machine's console output, as far as EC2 has it.
pub(super) async fn read(client: &Client, id: &InstanceId) -> Result<Option<String>, ComputeError> {
    match ask(client, id, true).await {
        Ok(Some(now)) => return Ok(Some(now)),
        // The type has no readable screen ("UnsupportedOperation"), or the machine is gone: the posted output is read.
        Ok(None) => {}
        Err(error) if matches!(error.meaning, Meaning::Refused | Meaning::Protected) => {}
        Err(error) => return answer(Err(error)),
    }
    answer(ask(client, id, false).await)
}

/// Converts a response; a machine that EC2 does not have has no console.
fn answer(told: Result<Option<String>, CallError>) -> Result<Option<String>, ComputeError> {
    match told {
        Err(error) if error.meaning == Meaning::NoSuchInstance => Ok(None),
        told => Ok(told?),
    }
}

async fn ask(client: &Client, id: &InstanceId, latest: bool) -> Result<Option<String>, CallError> {
    let told = client.get_console_output().instance_id(id.as_str()).latest(latest).send().await;
    let told = told.map_err(|error| CallError::of(&error))?;
    Ok(told.output().and_then(text))
}

/// Decodes a console. It contains whatever a machine wrote: not always text, and not always complete.
fn text(encoded: &str) -> Option<String> {
    let plain: String = encoded.split_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(plain).ok()?;
    let tail = &bytes[bytes.len().saturating_sub(MOST)..];
    (!tail.is_empty()).then(|| String::from_utf8_lossy(tail).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_read_whatever_bytes_are_on_it() {
        let encoded = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        assert_eq!(text(&encoded(b"runyard: hello\n")), Some("runyard: hello\n".into()));
        assert_eq!(text(&encoded(b"\xff\xferunyard: hello")), Some("\u{fffd}\u{fffd}runyard: hello".into()));
        let folded = encoded(&[b'x'; 90]);
        assert_eq!(text(&format!("{}\n{}\n", &folded[..76], &folded[76..])), Some("x".repeat(90)));
        assert_eq!(text(""), None);
        assert_eq!(text("not base64!"), None);
        assert_eq!(text(&encoded(&vec![b'x'; 80 << 10])).map(|text| text.len()), Some(MOST));
    }
}
