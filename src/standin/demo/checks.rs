//! The claims of the demonstration. Each is a function of the facts, so that a test can change the facts and see the
//! claim fail.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::model::InstanceId;

use super::facts::Facts;
use super::results::{Line, Word};

/// A claim and whether it holds.
#[derive(Clone, Debug)]
pub struct Check {
    /// The claim, in the words of the facts.
    pub claim: String,
    /// The facts that contradict it; none when it holds.
    pub against: Vec<String>,
}

/// Checks all claims.
pub(super) fn all(facts: &Facts) -> Vec<Check> {
    vec![once(facts), labels(facts), reuse(facts), clean(facts), warm(facts), nothing_left(facts)]
}

fn ran(facts: &Facts) -> impl Iterator<Item = &Line> {
    facts.lines.iter().filter(|line| line.word == Word::Ran)
}

fn once(facts: &Facts) -> Check {
    let mut against = Vec::new();
    for job in facts.wanted.keys() {
        let times = ran(facts).filter(|line| &line.job == job).count();
        if times != 1 {
            against.push(format!("job {job} ran {times} times"));
        }
        match facts.reported.get(job) {
            Some(reported) if reported.succeeded => {}
            Some(reported) => {
                let log = reported.log.lines().last().unwrap_or_default();
                against.push(format!("job {job} did not succeed: {log}"));
            }
            None => against.push(format!("GitHub does not know job {job}")),
        }
    }
    let unwanted = ran(facts).filter(|line| !facts.wanted.contains_key(&line.job));
    against.extend(unwanted.map(|line| format!("job {} ran, which nobody asked for", line.job)));
    if facts.wanted.is_empty() {
        against.push("no jobs".into());
    }
    Check { claim: format!("{} jobs, each executed exactly once", facts.wanted.len()), against }
}

fn labels(facts: &Facts) -> Check {
    let mut against = Vec::new();
    for line in ran(facts) {
        let Some(wanted) = facts.wanted.get(&line.job) else { continue };
        if line.run_id != wanted.run_id {
            against.push(format!("job {} saw itself in run {}", line.job, line.run_id));
        }
        match facts.labels.get(&line.runner) {
            Some(labels) if *labels == [wanted.label.clone()] => {}
            Some(labels) => against.push(format!("job {} ran where the labels were {labels:?}", line.job)),
            None => against.push(format!("job {} ran on unregistered {}", line.job, line.runner)),
        }
        match facts.claims.get(&line.runner) {
            Some(claim) if claim.label == wanted.label => {}
            Some(claim) => against.push(format!("job {} ran on a machine of {}", line.job, claim.label)),
            None => against.push(format!("job {} ran without a claim, on {}", line.job, line.runner)),
        }
        if facts.reported.get(&line.job).is_some_and(|r| r.runner.as_deref() != Some(line.runner.as_str())) {
            against.push(format!("GitHub gave job {} to another runner than {}", line.job, line.runner));
        }
    }
    Check { claim: "each on a machine claimed for its run, whose one label is its run's".into(), against }
}

/// Returns the runs whose jobs each machine executed.
fn served(facts: &Facts) -> BTreeMap<&InstanceId, BTreeSet<&str>> {
    let mut served: BTreeMap<&InstanceId, BTreeSet<&str>> = BTreeMap::new();
    for line in ran(facts) {
        if let Some(claim) = facts.claims.get(&line.runner) {
            served.entry(&claim.machine).or_default().insert(&line.run_id);
        }
    }
    served
}

fn reuse(facts: &Facts) -> Check {
    let again = served(facts).values().filter(|runs| runs.len() > 1).count();
    let against = if again == 0 { vec!["no machine served two runs".into()] } else { Vec::new() };
    Check { claim: format!("{again} machine(s) served more than one run"), against }
}

fn clean(facts: &Facts) -> Check {
    let saw = facts.lines.iter().filter(|line| line.word == Word::Saw);
    let mut against: Vec<String> =
        saw.map(|line| format!("job {} of run {} saw {}", line.job, line.run_id, line.what)).collect();
    let machine = |line: &Line| facts.claims.get(&line.runner).map(|claim| claim.machine.clone());
    let later =
        |first: &Line| ran(facts).any(|line| line.run_id != first.run_id && machine(line) == machine(first));
    let (mut files, mut processes) = (0, 0);
    for line in facts.lines.iter().filter(|line| machine(line).is_some() && later(line)) {
        match line.word {
            Word::Left => files += 1,
            Word::Started => processes += 1,
            Word::Ran | Word::Saw => {}
        }
    }
    if files == 0 || processes == 0 {
        against.push("nothing was left behind on a machine that another run used: the claim is empty".into());
    }
    let claim = format!("of {files} files and folders and {processes} processes left, the next run saw none");
    Check { claim, against }
}

fn warm(facts: &Facts) -> Check {
    let (warm, cold) = (facts.warm, facts.cold);
    let mut against = Vec::new();
    if warm.found == 0 || warm.booted > 0 {
        against.push(format!("the warm claim found {} machines and booted {}", warm.found, warm.booted));
    }
    if cold.found > 0 || cold.booted == 0 {
        against.push(format!("the cold start found {} machines and booted {}", cold.found, cold.booted));
    }
    let (warm, cold) = (warm.time.as_secs_f64(), cold.time.as_secs_f64());
    Check {
        claim: format!("a warm claim ({warm:.2} s) booted no machine, a cold start ({cold:.2} s) did"),
        against,
    }
}

fn nothing_left(facts: &Facts) -> Check {
    let left = &facts.left;
    let kinds = [
        ("process", &left.processes),
        ("registered runner", &left.runners),
        ("agent record", &left.agents),
        ("live machine", &left.instances),
        ("open request", &left.requests),
    ];
    let against =
        kinds.iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")));
    Check {
        claim: "nothing left: no process, runner, agent record, live machine, open request".into(),
        against: against.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::facts::{Claimed, Reported, Waited, Wanted};

    fn line(word: Word, job: &str, run: &str, runner: &str) -> Line {
        Line { word, job: job.into(), run_id: run.into(), runner: runner.into(), what: "x".into() }
    }

    /// Builds the facts of two runs with a job each on one machine, without faults.
    fn good() -> Facts {
        let cold = Waited { time: Duration::from_secs(2), found: 0, booted: 1 };
        // However long it took: a machine that is busy with other work may delay either.
        let warm = Waited { time: Duration::from_secs(3), found: 1, booted: 0 };
        let mut facts = Facts { cold, warm, ..Facts::default() };
        for (run, runner) in [("1", "runyard-i-1.2"), ("2", "runyard-i-1.7")] {
            let job = format!("{run}-a");
            facts.wanted.insert(job.clone(), Wanted { run_id: run.into(), label: run.into() });
            let runner_name = Some(runner.to_owned());
            let reported = Reported { succeeded: true, runner: runner_name, log: String::new() };
            facts.reported.insert(job.clone(), reported);
            for word in [Word::Ran, Word::Left, Word::Started] {
                facts.lines.push(line(word, &job, run, runner));
            }
            facts.labels.insert(runner.into(), vec![run.into()]);
            let claimed = Claimed { machine: InstanceId::parse("i-1").unwrap(), label: run.into() };
            facts.claims.insert(runner.into(), claimed);
        }
        facts
    }

    #[test]
    fn a_good_demonstration_passes() {
        for check in all(&good()) {
            assert_eq!(check.against, Vec::<String>::new(), "{}", check.claim);
        }
    }

    #[test]
    fn whatever_is_broken_one_claim_falls() {
        type Doctored = (&'static str, fn(&mut Facts), fn(&Facts) -> Check);
        let doctored: &[Doctored] = &[
            ("a job ran twice", |f| f.lines.push(f.lines[0].clone()), once),
            ("a job never ran", |f| drop(f.lines.remove(0)), once),
            ("a job failed", |f| f.reported.get_mut("1-a").unwrap().succeeded = false, once),
            ("a job is unknown to GitHub", |f| drop(f.reported.remove("1-a")), once),
            ("an unwanted job ran", |f| f.lines.push(line(Word::Ran, "x", "1", "runyard-i-1.2")), once),
            ("there were no jobs", |f| *f = Facts::default(), once),
            (
                "a runner had a second label",
                |f| f.labels.get_mut("runyard-i-1.2").unwrap().push("2".into()),
                labels,
            ),
            (
                "a runner had the other run's label",
                |f| f.labels.get_mut("runyard-i-1.2").unwrap()[0] = "2".into(),
                labels,
            ),
            ("a runner was not registered", |f| drop(f.labels.remove("runyard-i-1.2")), labels),
            (
                "a machine was held by the other run",
                |f| f.claims.get_mut("runyard-i-1.2").unwrap().label = "2".into(),
                labels,
            ),
            ("a machine was held by nobody", |f| drop(f.claims.remove("runyard-i-1.2")), labels),
            ("a job saw itself in another run", |f| f.lines[0].run_id = "2".into(), labels),
            ("GitHub names another runner", |f| f.reported.get_mut("1-a").unwrap().runner = None, labels),
            (
                "each run had its own machine",
                |f| f.claims.get_mut("runyard-i-1.7").unwrap().machine = InstanceId::parse("i-2").unwrap(),
                reuse,
            ),
            ("a file was seen", |f| f.lines.push(line(Word::Saw, "2-a", "2", "runyard-i-1.7")), clean),
            ("no file was left to be seen", |f| f.lines.retain(|l| l.word != Word::Left), clean),
            ("no process was left to be seen", |f| f.lines.retain(|l| l.word != Word::Started), clean),
            ("a machine booted for the warm claim", |f| f.warm.booted = 1, warm),
            ("the warm claim has no machine on record", |f| f.warm.found = 0, warm),
            ("the cold start found a machine", |f| f.cold.found = 1, warm),
            ("the cold start has no machine on record", |f| f.cold.booted = 0, warm),
            ("a process is left", |f| f.left.processes.push("1".into()), nothing_left),
            ("a runner is left", |f| f.left.runners.push("r".into()), nothing_left),
            ("an agent record is left", |f| f.left.agents.push("a".into()), nothing_left),
            ("a machine is left", |f| f.left.instances.push("i-1".into()), nothing_left),
            ("a request is left", |f| f.left.requests.push("1".into()), nothing_left),
        ];
        for (what, doctor, check) in doctored {
            let mut facts = good();
            doctor(&mut facts);
            assert!(!check(&facts).against.is_empty(), "{what}, and it passes");
        }
    }
}
