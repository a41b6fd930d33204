//! Judges GitHub's response to a listener that asks for a session: whether to try again, and the message meanwhile
//! (actions/runner, `BrokerMessageListener.cs`).

use std::time::Duration;

use super::calls::CallError;
use super::demands::Ending;

/// How often a session is requested while another's is held, and without a token.
const CONFLICTS: u32 = 8;
const TOKENLESS: u32 = 3;

/// The failures while a session was requested.
#[derive(Default)]
pub(super) struct Trouble {
    conflicts: u32,
    tokenless: u32,
}

impl Trouble {
    /// Returns how the listener ends if this failure is one too many; prints GitHub's message each time.
    pub(super) fn ends(&mut self, error: &CallError, again: Duration, url: &str) -> Option<Ending> {
        let ending = match error {
            CallError::Unauthorized => {
                eprintln!("{}", Ending::DeletedBefore.words());
                return Some(Ending::DeletedBefore);
            }
            CallError::Deprecated(_) => Ending::SessionRefused,
            CallError::Conflict(_) => {
                eprintln!("A session for this runner already exists.");
                self.conflicts += 1;
                if self.conflicts < CONFLICTS {
                    return None;
                }
                let seconds = (again * CONFLICTS).as_secs_f32();
                eprintln!("{} {seconds} seconds.", Ending::Conflict.words());
                Ending::Conflict
            }
            CallError::NoToken(_) => {
                self.tokenless += 1;
                if self.tokenless < TOKENLESS {
                    return None;
                }
                eprintln!("{} {url}.", Ending::NoToken.words());
                return Some(Ending::NoToken);
            }
            CallError::NotFound
            | CallError::Gone
            | CallError::Busy(_)
            | CallError::Refused(_)
            | CallError::Unreachable(_) => return None,
        };
        eprintln!("{}{error}", Ending::SessionRefused.words());
        Some(ending)
    }
}
