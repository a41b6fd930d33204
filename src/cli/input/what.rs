//! Parses the words after a verb: kinds (`pools`, `requests,instances`, `all`) or records (`pool small large`,
//! `pool/small instance/i-402`).

use clap::{Args, ValueEnum as _};

use super::completion;
use super::selector::{Noun, Selector};
use crate::common::failure::{CliFailure, CliResult};
use crate::session::names;
use runyard_core::model::{ClassName, FieldError, RunId};

/// A named target: a whole kind, or one of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The kind.
    pub(crate) noun: Noun,
    /// The record, if one is named.
    pub(crate) selector: Option<Selector>,
}

/// One record, as `KIND NAME` or `KIND/NAME`.
#[derive(Clone, Debug, Args)]
pub(crate) struct OneArgs {
    /// Kind of record: instance (i), request (r), pool (p) or launch (l), or KIND/NAME
    #[arg(value_name = "KIND", add = completion::kinds_and_names())]
    what: String,
    /// Name: an instance ID or prefix, RUN_ID[/NAME[/ATTEMPT]], a class, a launch ID
    #[arg(value_name = "NAME", add = completion::of_the_kind_before())]
    name: Option<String>,
}

impl OneArgs {
    /// Creates the argument from these words.
    pub(crate) const fn of(what: String, name: Option<String>) -> Self {
        Self { what, name }
    }

    /// Returns the workflow run that the words name, if they name one: it has no record of its own.
    pub(crate) fn run(&self) -> CliResult<Option<RunId>> {
        let (kind, name) = match self.what.split_once('/') {
            Some((kind, name)) if self.name.is_none() => (kind, Some(name)),
            Some(_) | None => (self.what.as_str(), self.name.as_deref()),
        };
        if !RUN.contains(&kind) {
            return Ok(None);
        }
        let Some(name) = name else {
            return Err(CliFailure::usage(FieldError::new("NAME", "", "is required", "write run RUN_ID")));
        };
        RunId::parse(name).map(Some).map_err(|problem| CliFailure::usage(problem.named("NAME")))
    }

    /// Returns the selected record, where runs can be named too.
    pub(crate) fn selector_beside_runs(&self) -> CliResult<Selector> {
        self.selector().map_err(|mut failure| {
            let kind = self.what.split('/').next().unwrap_or_default();
            for problem in failure.problems.iter_mut().filter(|problem| problem.field == "KIND") {
                let near = names::meant(kind, std::iter::once("run"));
                if !near.is_empty() {
                    problem.fix = format!("{near}write run RUN_ID");
                }
            }
            failure
        })
    }

    /// Returns the selected record.
    pub(crate) fn selector(&self) -> CliResult<Selector> {
        let names: Vec<String> = self.name.iter().cloned().collect();
        let named = targets(&self.what, &names).map_err(CliFailure::usage)?;
        match <[Target; 1]>::try_from(named) {
            Ok([Target { selector: Some(selector), .. }]) => Ok(selector),
            Ok([Target { selector: None, .. }]) => {
                let fix = format!("write {0} NAME or {0}/NAME", self.what);
                Err(CliFailure::usage(FieldError::new("NAME", "", "is required", fix)))
            }
            Err(_) => {
                let fix = "name one record, as KIND NAME or KIND/NAME";
                Err(CliFailure::usage(FieldError::new("KIND", &self.what, "is more than one kind", fix)))
            }
        }
    }
}

/// The words for a workflow run, which `explain` alone takes.
const RUN: [&str; 2] = ["run", "runs"];

/// Every kind, in the order in which they are listed.
const ALL: [Noun; 4] = [Noun::Pools, Noun::Instances, Noun::Requests, Noun::Launches];

/// Parses a kind.
pub(crate) fn noun(word: &str) -> Result<Noun, FieldError> {
    Noun::from_str(word, false).map_err(|_| {
        if RUN.contains(&word) {
            let fix = "`runyard explain run RUN_ID` tells its jobs; use requests (r) for what it asked for";
            return FieldError::new("KIND", word, "is no kind of record", fix);
        }
        let known = ["instances", "requests", "pools", "launches", "shares", "all"];
        let near = names::meant(word, known.into_iter());
        let fix =
            format!("{near}use one of instances (i), requests (r), pools (p), launches (l), shares, all");
        FieldError::new("KIND", word, "is no kind of record", fix)
    })
}

/// Parses the words into targets.
pub(crate) fn targets(what: &str, names: &[String]) -> Result<Vec<Target>, FieldError> {
    if what.contains('/') {
        return std::iter::once(what).chain(names.iter().map(String::as_str)).map(one).collect();
    }
    let nouns: Vec<Noun> = match what {
        "all" => ALL.to_vec(),
        kinds => kinds.split(',').map(noun).collect::<Result<_, _>>()?,
    };
    if names.is_empty() {
        return Ok(nouns.into_iter().map(|noun| Target { noun, selector: None }).collect());
    }
    let [noun] = nouns.as_slice() else {
        let fix = "name one kind before NAMEs, or write each as KIND/NAME";
        return Err(FieldError::new("NAME", names.join(" "), "stands after more than one kind", fix));
    };
    names
        .iter()
        .map(|name| {
            let selector = Selector::parse(*noun, name).map_err(|problem| problem.named("NAME"))?;
            Ok(Target { noun: *noun, selector: Some(selector) })
        })
        .collect()
}

/// Parses `KIND/NAME`.
fn one(word: &str) -> Result<Target, FieldError> {
    let Some((kind, name)) = word.split_once('/') else {
        let fix = "write every one as KIND/NAME, or one KIND and then the NAMEs";
        return Err(FieldError::new("NAME", word, "has no kind", fix));
    };
    let noun = noun(kind)?;
    let selector = Selector::parse(noun, name).map_err(|problem| problem.named("NAME"))?;
    Ok(Target { noun, selector: Some(selector) })
}

/// Parses a class, given by its name or as `pool/NAME`.
pub(crate) fn class_of(text: &str) -> Result<ClassName, FieldError> {
    let pool = ["pool/", "pools/", "po/", "p/"].iter().find_map(|kind| text.strip_prefix(kind));
    ClassName::parse(pool.unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &str) -> Result<Vec<(Noun, bool)>, String> {
        let mut words = words.split(' ').map(str::to_owned);
        let what = words.next().unwrap();
        let targets = targets(&what, &words.collect::<Vec<_>>()).map_err(|problem| problem.field)?;
        Ok(targets.into_iter().map(|target| (target.noun, target.selector.is_some())).collect())
    }

    #[test]
    fn kinds_are_named_in_full_or_short_one_or_several_or_all() {
        use Noun::{Instances, Launches, Pools, Requests};
        assert_eq!(named("po"), Ok(vec![(Pools, false)]));
        assert_eq!(named("i,req"), Ok(vec![(Instances, false), (Requests, false)]));
        let all = [Pools, Instances, Requests, Launches].map(|noun| (noun, false));
        assert_eq!(named("all"), Ok(all.to_vec()));
        assert_eq!(named("pool small large"), Ok(vec![(Pools, true), (Pools, true)]));
        assert_eq!(named("pool/small request/42/gpu/1"), Ok(vec![(Pools, true), (Requests, true)]));
        assert_eq!(named("machines"), Err("KIND".into()));
        assert_eq!(named("pool/small large"), Err("NAME".into()), "a name without its kind");
        assert_eq!(named("all small"), Err("NAME".into()));
        assert!(noun("instnces").unwrap_err().fix.contains("did you mean instances?"));
    }
}
