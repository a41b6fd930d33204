//! What is to go wrong? Nothing by default: a cloud with room for everyone that tells of everything at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::answer::Refused;

/// A zone and how machines there are paid for (`spot` or `on-demand`).
pub(super) type Offering = (String, String);

/// How the peer behaves.
#[derive(Debug, Default)]
pub struct Rules {
    /// How many more machines an offering has; without a number there is no end of them.
    pub capacity: BTreeMap<Offering, u32>,
    /// How many addresses a subnet has left, if not plenty.
    pub free_addresses: BTreeMap<&'static str, u32>,
    /// The most spot machines alive.
    pub spot_limit: Option<usize>,
    /// How many answers a new machine is missing from.
    pub unseen_for: u32,
    /// How many more answers it stands in without its tags.
    pub untagged_for: u32,
    /// How many more answers it stands in as `pending`.
    pub pending_for: u32,
    /// The largest page, whatever is asked for.
    pub page: Option<usize>,
    /// Calls to come that are done and whose answer never arrives, by action.
    pub lost: VecDeque<&'static str>,
    /// Calls to come that are done and that their caller waits for in vain, by action.
    pub silent: VecDeque<&'static str>,
    /// Calls to come that are refused, by action.
    pub refused: VecDeque<(&'static str, Refused)>,
    /// What launches of a class come to instead of machines, by its name: EC2 says so inside an answer that succeeds.
    pub no_launch: BTreeMap<String, (&'static str, &'static str)>,
    /// Kinds of resources whose launch the caller's policies do not allow. EC2 says so inside an answer that succeeds.
    pub forbidden: BTreeSet<&'static str>,
    /// Which image each parameter of Systems Manager names.
    pub parameters: BTreeMap<String, String>,
    /// Tags that the account's policies demand of all that a launch makes, and whether of volumes that they be
    /// encrypted.
    pub demanded_tags: BTreeSet<&'static str>,
    pub demands_encryption: bool,
    /// What machines that are born from now on have on their consoles.
    pub consoles: Vec<u8>,
    /// Images and instance profiles that are not there.
    pub no_images: BTreeSet<&'static str>,
    pub no_profiles: BTreeSet<&'static str>,
    /// What images are built for, if not `x86_64`, and how many GiB their root volumes have, if not 8.
    pub image_architecture: Option<&'static str>,
    pub image_gib: Option<u32>,
    /// The key by which volumes are encrypted by default; none if they are not.
    pub volumes_key: Option<String>,
    /// Machines that may not be ended.
    pub protected: BTreeSet<String>,
    /// Whether its types are older than Nitro, whose screens cannot be looked at.
    pub no_screens: bool,
    /// Whether a replayed fleet names no machines.
    pub silent_replays: bool,
    /// How many calls may be made.
    pub bucket: Option<Bucket>,
}

/// EC2's way to limit calls: a bucket of tokens that fills again (EC2 developer guide, "Request throttling").
#[derive(Debug)]
pub struct Bucket {
    left: f64,
    most: f64,
    per_second: f64,
    filled: Instant,
}

impl Bucket {
    #[expect(clippy::disallowed_methods, reason = "a peer of the other side has a clock of its own")]
    pub fn empty(most: f64, per_second: f64) -> Self {
        Self { left: 0.0, most, per_second, filled: Instant::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "a peer of the other side has a clock of its own")]
    fn take(&mut self) -> bool {
        let now = Instant::now();
        let since: Duration = now - self.filled;
        self.filled = now;
        self.left = (self.left + since.as_secs_f64() * self.per_second).min(self.most);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

impl Rules {
    /// Whether a call is let in.
    pub fn admit(&mut self, action: &str) -> Result<(), Refused> {
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take()) {
            return Err(Refused::new("RequestLimitExceeded", "Request limit exceeded."));
        }
        if self.refused.front().is_some_and(|(next, _)| *next == action)
            && let Some((_, refused)) = self.refused.pop_front()
        {
            return Err(refused);
        }
        Ok(())
    }

    /// Whether a call is never answered.
    pub fn hangs(&mut self, action: &str) -> bool {
        let silent = self.silent.front().is_some_and(|next| *next == action);
        if silent {
            self.silent.pop_front();
        }
        silent
    }

    /// Whether the answer to a call gets lost.
    pub fn loses(&mut self, action: &str) -> bool {
        let lost = self.lost.front().is_some_and(|next| *next == action);
        if lost {
            self.lost.pop_front();
        }
        lost
    }

    /// The image that a launch template's `ImageId` means: itself, or what its parameter names.
    pub fn image(&self, said: &str) -> Result<String, Refused> {
        let Some(parameter) = said.strip_prefix("resolve:ssm:") else { return Ok(said.to_owned()) };
        let missing = || {
            let why = format!("The Systems Manager parameter {parameter} does not exist");
            Refused::new("InvalidParameterValue", why)
        };
        self.parameters.get(parameter).cloned().ok_or_else(missing)
    }

    /// Takes one machine out of an offering.
    pub fn take(&mut self, offering: &Offering) -> bool {
        match self.capacity.get_mut(offering) {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}
