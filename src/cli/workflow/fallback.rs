//! What `provision` does with `--fallback` where no machine is ready in time: the output label is that of another runner,
//! such as a hosted one, so that the jobs of the workflow run in any case.

use std::time::Duration;

use serde_json::{Value, json};

use super::github_output;
use super::release::write_released;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::output::format::plain;
use crate::output::screen::{self, Screen};
use crate::session::context::{CliContext, readable};
use runyard_core::model::{FieldError, Item, Request};

/// How long a release may take of a request that nobody follows any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// The label of the runners that take the jobs instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fallback(String);

impl Fallback {
    /// Parses a label.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=100).contains(&text.len()) && text.bytes().all(good) {
            return Ok(Self(text.to_owned()));
        }
        let fix = "write one label of 1 to 100 of A-Z, a-z, 0-9, ., _ and -, such as ubuntu-latest";
        Err(FieldError::new("fallback", text, "is not the label of a runner", fix))
    }

    /// Takes the label because the request got no machines: tells the workflow, and ends well.
    pub(crate) fn take(
        &self,
        screen: &mut Screen,
        environment: &Environment,
        record: Option<&Item>,
        why: &str,
    ) -> CliResult {
        let Self(label) = self;
        let request = record.and_then(|item| readable::<Request>(item).ok());
        let published = github_output::publish_fallback(environment, label, request.as_ref(), why);
        let message = format!("the jobs run on {label} instead of machines of Runyard: {}", plain(why));
        if environment.get("GITHUB_ACTIONS") == Some("true") {
            screen::warn_workflow(&message);
        } else {
            screen.remark(format!("warning: {message}"));
        }
        screen.say(format!("fallback: runs-on {label}"));
        screen.document(&self.document(record.zip(request.as_ref())));
        published
    }

    /// Returns the request's record for programs, if there is one, with the label that its jobs are to use.
    fn document(&self, record: Option<(&Item, &Request)>) -> Value {
        let mut document =
            record.map_or_else(|| json!({}), |(item, request)| github_output::document(item, request));
        document["label"] = self.0.as_str().into();
        document["fallback"] = true.into();
        document
    }

    /// Takes the label because the table failed. A request that was written all the same is released, if that can be
    /// done soon.
    pub(crate) async fn without_answer(
        &self,
        context: &mut CliContext,
        record: Option<Item>,
        request: Option<Request>,
        failure: &CliFailure,
    ) -> CliResult {
        let released = match &request {
            Some(request) => {
                let written = tokio::time::timeout(PATIENCE, write_released(context, request)).await;
                written.ok().and_then(Result::ok)
            }
            None => None,
        };
        let left = if request.is_some() && released.is_none() {
            "; its request could not be released, so it may still get machines until it is over"
        } else {
            ""
        };
        let record = released.filter(|item| !item.is_empty()).or(record);
        let why = format!("{}{left}", said(failure));
        let CliContext { screen, environment, .. } = context;
        self.take(screen, environment, record.as_ref(), &why)
    }
}

/// Describes a failure in a sentence, without its form as an error.
pub(super) fn said(failure: &CliFailure) -> String {
    let one = |problem: &FieldError| {
        let value = if problem.value.is_empty() { String::new() } else { format!(" {}", problem.value) };
        format!("{}{value}: {}; {}", problem.field, problem.message, problem.fix)
    };
    failure.problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use runyard_core::model::AttributeValue;
    use runyard_core::ports::StoreError;
    use runyard_fakes::{Fault, MemoryStore};

    use super::*;
    use crate::common::failure::Exit;
    use crate::session::verb::Verb as _;
    use crate::verbs::{AnyVerb, Cli, Once};

    #[test]
    fn a_label_is_one_word_that_cannot_write_another_output() {
        for good in ["ubuntu-latest", "ubuntu-24.04-arm", "my_Runner.8-core"] {
            assert!(Fallback::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a,b", "a\nphase=Ready", "${{ x }}", &"a".repeat(101)] {
            assert!(Fallback::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// Asks for so many machines with a fallback; returns the outputs.
    async fn provision(store: &MemoryStore, count: &str) -> CliResult<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let words = ["runyard", "provision", "--class", "small", "--count", count, "--timeout", "1m"];
        let words = [&words[..], &["--wait", "--fallback", "ubuntu-latest"]].concat();
        let cli = Cli::try_parse_from(words).unwrap();
        let mut context = CliContext::on(store.clone(), Screen::kept_at(&cli.common.output, None).0);
        context.environment = Environment::of(&[
            ("GITHUB_RUN_ID", "42"),
            ("GITHUB_REPOSITORY", "acme/web"),
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_OUTPUT", file.path().to_str().unwrap()),
        ]);
        let AnyVerb::Once(Once::Provision(args)) = cli.verb else { panic!("it is provision") };
        args.run_on(&mut context).await?;
        Ok(std::fs::read_to_string(file.path()).unwrap())
    }

    fn desired(store: &MemoryStore) -> Option<AttributeValue> {
        store.records().first().and_then(|record| record.get("desired").cloned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_fails_before_or_after_the_write_sends_the_jobs_elsewhere() {
        let store = MemoryStore::new();
        store.next_write(Fault::Fail(StoreError::Unknown("request has timed out".into())));
        let outputs = provision(&store, "1").await.unwrap();
        assert_eq!(outputs, "label=ubuntu-latest\nphase=\ninstances=[]\nready-at=\nfallback=true\n");
        assert_eq!(desired(&store), None);
        store.next_read(Fault::Fail(StoreError::Denied("no".into())));
        let outputs = provision(&store, "1").await.unwrap();
        assert!(outputs.starts_with("label=ubuntu-latest\nphase=Pending\n"), "{outputs}");
        assert_eq!(
            desired(&store),
            Some(AttributeValue::S("released".into())),
            "nobody would use its machines"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_over_sends_the_jobs_elsewhere_and_a_mistake_is_still_one() {
        let store = MemoryStore::new();
        provision(&store, "1").await.unwrap();
        assert_eq!(desired(&store), Some(AttributeValue::S("released".into())), "nobody answered");
        assert!(provision(&store, "1").await.unwrap().contains("fallback=true\n"), "it is over");
        let other = MemoryStore::new();
        let words =
            ["runyard", "provision", "--run-id", "42", "--repository", "acme/web", "--class", "small"];
        let cli = Cli::try_parse_from([&words[..], &["--count", "2"]].concat()).unwrap();
        let mut context = CliContext::on(other.clone(), Screen::kept_at(&cli.common.output, None).0);
        let AnyVerb::Once(Once::Provision(args)) = cli.verb else { panic!("it is provision") };
        args.run_on(&mut context).await.unwrap();
        let failure = provision(&other, "1").await.unwrap_err();
        assert_eq!(failure.exit, Exit::Error, "another request has the key");
        assert!(failure.to_string().contains("different intent"), "{failure}");
    }
}
