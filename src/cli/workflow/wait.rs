//! `runyard wait`: waits until a record meets a condition, such as a ready request or an ended machine.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::run::repository_hint;
use crate::input::selector::Selector;
use crate::input::what::OneArgs;
use crate::output::json;
use crate::output::path::Path;
use crate::session::context::CliContext;
use crate::session::polling::{Interrupts, Waited, until};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{FieldError, Phase, RecordId, Repository, State};

/// Waits for a record.
#[derive(Debug, Args)]
#[command(after_help = "\
What can be waited for: delete (the record is gone); a state or phase by its name (Ready, idle, terminated; any case); \
condition=TYPE (true) or condition=TYPE=false; PATH=VALUE of the record as JSON. Exit 4 when the time is over, 3 when a \
request ended in another phase.

Examples:
  runyard wait request/1234567890 --for=ready
  runyard wait pool/linux-x64 --for=condition=Warm --timeout 5m
  runyard wait instance/i-0123456789abcdef0 --for=terminated
  runyard wait pool/linux-x64 --for=.counts.idle=3")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Condition to wait for
    #[arg(long = "for", value_name = "WHAT", value_parser = For::parse)]
    wanted: For,
    /// Maximum wait
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::patience)]
    timeout: Duration,
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    repository: Option<Repository>,
}

impl Verb for WaitArgs {
    type Input = WaitTarget;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let selector = self.one.selector()?;
        let fits = match (&self.wanted, &selector) {
            (For::State(_), Selector::Instance(_)) | (For::Phase(_), Selector::Request(_)) => true,
            (For::State(_) | For::Phase(_), _) => false,
            (For::Delete | For::Condition(..) | For::Value(..), _) => true,
        };
        if !fits {
            let fix =
                "instances have a state, requests a phase; pools have conditions, such as condition=Warm";
            let problem = FieldError::new("--for", "", "is nothing this kind of record has", fix);
            return Err(CliFailure::usage(problem));
        }
        let repository =
            repository_hint(self.repository.as_ref(), start.environment).map_err(CliFailure::usage)?;
        Ok(WaitTarget(selector, repository))
    }

    async fn run(&self, context: &mut CliContext, target: Self::Input) -> CliResult {
        let target = &target;
        let mut interrupts = Interrupts::listen()?;
        let item = match target.0.find(context, target.1.as_ref()).await {
            Ok(item) => item,
            Err(failure) if self.wanted == For::Delete && failure.is_missing() => {
                context.screen.say("there is no such record");
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        let key = RecordId::of(&item).expect("what was found by its key has one");
        let mut last = json::record(&item);
        let waited = {
            let (context, last) = (&*context, &mut last);
            until(self.timeout, &mut interrupts, async || {
                let Some(item) = context.item(&key).await? else {
                    return Ok(Some(self.wanted == For::Delete));
                };
                *last = json::record(&item);
                if self.wanted.holds(last) {
                    return Ok(Some(true));
                }
                Ok(self.wanted.over(last).then_some(false))
            })
            .await?
        };
        context.screen.document(&last);
        let failed = |message: String, fix: &str, exit| {
            Err(CliFailure::error("record", key.to_string(), message, fix).exiting(exit))
        };
        let word = |name: &str| last.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let now = format!("{}{}", word("state"), word("phase"));
        match waited {
            Waited::Done(true) => {
                context.screen.say(format!("{key}: it is so"));
                Ok(())
            }
            Waited::Done(false) if self.wanted.over(&last) => failed(
                format!("ended {now}: {}", word("message")),
                "see `runyard events`",
                Exit::RequestFailed,
            ),
            Waited::Done(false) => failed("was deleted".into(), "see `runyard events`", Exit::Error),
            Waited::TimedOut => {
                let message = format!("is not so after {}; it is {now}", duration::show(self.timeout));
                failed(message, "wait longer (--timeout), or see `runyard explain`", Exit::TimedOut)
            }
            Waited::Interrupted(caught) => failed(
                format!("interrupted by {}", caught.name()),
                "run the command again",
                Exit::Signal(caught),
            ),
        }
    }
}

/// The condition to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum For {
    Delete,
    State(State),
    Phase(Phase),
    Condition(String, bool),
    Value(Path, String),
}

impl For {
    fn parse(text: &str) -> Result<Self, FieldError> {
        let same = |word: &str| word.eq_ignore_ascii_case(text);
        if same("delete") || same("deleted") {
            return Ok(Self::Delete);
        }
        if let Some(state) = State::ALL.iter().find(|state| same(state.as_str())) {
            return Ok(Self::State(*state));
        }
        if let Some(phase) = Phase::ALL.iter().find(|phase| same(phase.as_str())) {
            return Ok(Self::Phase(*phase));
        }
        let refused = || {
            let fix =
                "use ready, idle, terminated, delete, condition=TYPE or PATH=VALUE, such as .counts.idle=3";
            FieldError::new("--for", text, "is nothing that can be waited for", fix)
        };
        let (name, value) = text.split_once('=').ok_or_else(refused)?;
        if name != "condition" {
            return Ok(Self::Value(Path::parse(name)?, value.to_owned()));
        }
        match value.split_once('=') {
            None => Ok(Self::Condition(value.to_owned(), true)),
            Some((name, "true")) => Ok(Self::Condition(name.to_owned(), true)),
            Some((name, "false")) => Ok(Self::Condition(name.to_owned(), false)),
            Some(_) => Err(refused()),
        }
    }

    /// Returns whether a record meets the condition.
    fn holds(&self, record: &Value) -> bool {
        match self {
            Self::Delete => false,
            Self::State(state) => record["state"] == state.as_str(),
            Self::Phase(phase) => {
                record.get("phase").and_then(Value::as_str).unwrap_or("Pending") == phase.as_str()
            }
            Self::Condition(name, is) => record["conditions"].as_array().is_some_and(|all| {
                let named =
                    |one: &&Value| one["type"].as_str().is_some_and(|word| word.eq_ignore_ascii_case(name));
                all.iter().find(named).is_some_and(|one| one["status"] == *is)
            }),
            Self::Value(path, value) => path.text(record).is_some_and(|text| text == *value),
        }
    }

    /// Returns whether a request in its final phase can no longer meet it.
    fn over(&self, record: &Value) -> bool {
        let last = |word: &str| word.parse::<Phase>().is_ok_and(Phase::is_final);
        match self {
            Self::Phase(_) => record["phase"].as_str().is_some_and(last),
            Self::Delete | Self::State(_) | Self::Condition(..) | Self::Value(..) => false,
        }
    }
}

/// The selected record and its repository.
pub(crate) struct WaitTarget(Selector, Option<Repository>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_is_waited_for_by_state_phase_condition_or_value() {
        let request = json!({"phase": "Failed", "count": 3,
            "conditions": [{"type": "Ready", "status": false}, {"type": "Accepted", "status": true}]});
        let holds = |text: &str| For::parse(text).unwrap().holds(&request);
        assert!(holds("failed") && !holds("Ready"));
        assert!(holds("condition=accepted") && holds("condition=Ready=false") && !holds("condition=Warm"));
        assert!(holds(".count=3") && !holds("count=4") && !holds("delete"));
        assert!(For::parse("ready").unwrap().over(&request), "it will never be ready");
        assert!(!For::parse("count=4").unwrap().over(&request));
        for bad in ["", "soon", "condition=Ready=perhaps", ".a b=1"] {
            assert!(For::parse(bad).is_err(), "{bad}");
        }
    }
}
