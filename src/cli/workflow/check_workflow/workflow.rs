//! Finds the jobs of a workflow in its document, with the runner and the steps of each.

use std::rc::Rc;

use super::document::{Node, Refusal};

/// A job.
pub(super) struct Job {
    /// Its id.
    pub(super) name: String,
    /// The line of its id.
    pub(super) line: usize,
    /// The whole job.
    node: Rc<Node>,
    /// Its steps; empty if the job calls a workflow.
    pub(super) steps: Vec<Rc<Node>>,
}

impl Job {
    /// Returns the value of one of its keys, if it is not null.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.node.get(name).filter(|node| !node.is_null())
    }

    /// Returns the line of one of its keys.
    pub(super) fn line_of(&self, name: &str) -> usize {
        self.node.entry(name).map_or(self.line, |(key, _)| key.line)
    }

    /// Returns whether the job requests or releases machines, and so runs elsewhere.
    pub(super) fn asks_for_machines(&self) -> bool {
        let action = |uses: &str| {
            let path = uses.split('@').next().unwrap_or_default();
            ["/config/actions/provision", "/config/actions/release"]
                .iter()
                .any(|action| path.ends_with(action))
        };
        let command =
            |run: &str| ["runyard provision", "runyard release"].iter().any(|words| run.contains(words));
        let text = |step: &Node, name: &str| step.get(name).and_then(Node::text).map(str::to_owned);
        self.steps.iter().any(|step| {
            text(step, "uses").is_some_and(|uses| action(&uses))
                || text(step, "run").is_some_and(|run| command(&run))
        })
    }

    /// Returns the values that the matrix has for a path such as `os` or `target.runner`, each with its line; `None` if
    /// they are known only in a run.
    pub(super) fn matrix(&self, path: &str) -> Option<Vec<(usize, String)>> {
        let mut segments = path.split('.');
        let first = segments.next()?;
        let rest: Vec<&str> = segments.collect();
        let matrix = self.get("strategy")?.get("matrix")?;
        let listed = match matrix.get(first) {
            Some(values) => values.items()?,
            None => &[],
        };
        let included = match matrix.get("include") {
            Some(values) => values.items()?,
            None => &[],
        };
        let included = included.iter().filter_map(|one| one.get(first));
        let values = listed.iter().map(|value| &**value).chain(included).map(|value| {
            let value = rest.iter().try_fold(value, |value, name| value.get(name))?;
            let text = value.text().filter(|text| !text.contains("${{"))?;
            Some((value.line, text.to_owned()))
        });
        let values: Vec<_> = values.collect::<Option<_>>()?;
        (!values.is_empty()).then_some(values)
    }
}

const WORKFLOW: &str = "name a workflow file, such as .github/workflows/test.yml";
const JOB: &str = "write a job as `NAME:` with `runs-on` and `steps` below it";

/// Returns the jobs of a workflow, in the file's order.
pub(super) fn jobs(root: &Node) -> Result<Vec<Job>, Refusal> {
    if root.entries().is_none() {
        return Err(Refusal::new(root.line, "", "is not a mapping of keys", WORKFLOW));
    }
    let Some((key, jobs)) = root.entry("jobs") else {
        let fix = match root.entry("runs") {
            Some(_) => "this is an action: name the workflow that uses it",
            None => WORKFLOW,
        };
        return Err(Refusal::new(root.line, "jobs", "is missing", fix));
    };
    match jobs.entries() {
        Some([]) | None => Err(Refusal::new(key.line, "jobs", "is not a mapping of at least one job", JOB)),
        Some(jobs) => jobs.iter().map(|(key, node)| job(&key.name, key.line, node)).collect(),
    }
}

fn job(name: &str, line: usize, node: &Rc<Node>) -> Result<Job, Refusal> {
    if node.entries().is_none() {
        return Err(Refusal::new(line, name, "is a job that is no mapping", JOB));
    }
    let job = Job { name: name.into(), line, node: Rc::clone(node), steps: Vec::new() };
    if job.get("uses").is_some() {
        return Ok(job);
    }
    let Some(runs_on) = job.get("runs-on") else {
        let fix = "write `runs-on: ubuntu-24.04`, or `uses:` with a workflow that it calls";
        return Err(Refusal::new(line, name, "is a job without `runs-on`", fix));
    };
    let labels = runs_on.items().map(|labels| labels.iter().all(|label| label.text().is_some()));
    if labels == Some(false) || runs_on.items().is_some_and(<[_]>::is_empty) {
        let fix = "write a label, a list of labels, or `group:` and `labels:`";
        return Err(Refusal::new(runs_on.line, name, "has a `runs-on` that names no labels", fix));
    }
    let steps = steps(&job)?;
    Ok(Job { steps, ..job })
}

/// Returns the steps of a job, including those that run in parallel.
fn steps(job: &Job) -> Result<Vec<Rc<Node>>, Refusal> {
    let Some(steps) = job.get("steps") else { return Ok(Vec::new()) };
    let fix = "write each step as `- run: …` or `- uses: …`";
    let Some(items) = steps.items() else {
        return Err(Refusal::new(job.line_of("steps"), &job.name, "has `steps` that are no list", fix));
    };
    let mut found = Vec::new();
    for step in items {
        if step.entries().is_none() {
            return Err(Refusal::new(step.line, &job.name, "has a step that is no mapping", fix));
        }
        match step.get("parallel").and_then(Node::items) {
            Some(steps) => found.extend(steps.iter().cloned()),
            None => found.push(Rc::clone(step)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::document::read;
    use super::*;

    #[test]
    fn what_is_no_workflow_is_refused_by_its_line() {
        for (text, line, words) in [
            ("x\n", 1, "not a mapping"),
            ("on: push\n", 1, "is missing"),
            ("name: x\nruns: {using: node24}\n", 1, "is missing"),
            ("on: push\njobs:\n", 2, "at least one job"),
            ("jobs: []\n", 1, "at least one job"),
            ("jobs:\n  a: 1\n", 2, "no mapping"),
            ("jobs:\n  a:\n", 2, "no mapping"),
            ("jobs:\n  a: {steps: []}\n", 2, "without `runs-on`"),
            ("jobs:\n  a:\n    runs-on:\n", 2, "without `runs-on`"),
            ("jobs:\n  a:\n    runs-on: []\n", 3, "names no labels"),
            ("jobs:\n  a:\n    runs-on:\n      - {x: 1}\n", 4, "names no labels"),
            ("jobs:\n  a:\n    runs-on: x\n    steps: 1\n", 4, "no list"),
            ("jobs:\n  a:\n    runs-on: x\n    steps:\n      - echo\n", 5, "step that is no mapping"),
        ] {
            let Err(refusal) = read(text).and_then(|root| jobs(&root)) else { panic!("{text:?}") };
            assert!(refusal.message.contains(words), "{text:?}: {refusal:?}");
            assert_eq!(refusal.line, line, "{text:?}: {refusal:?}");
        }
    }

    #[test]
    fn a_matrix_has_the_values_of_its_lists_and_of_what_is_included() {
        let text = "
jobs:
  a:
    runs-on: x
    strategy:
      matrix:
        os: [u, w]
        target:
          - {runner: r1}
          - {runner: r2}
        late: ${{ fromJSON(needs.x.outputs.y) }}
        include:
          - os: m
            only: o
    steps:
      - parallel:
          - run: a
          - run: b
";
        let jobs = jobs(&read(text).unwrap()).unwrap();
        let values = |path| {
            let values = jobs[0].matrix(path);
            values.map(|found| {
                found.into_iter().map(|(line, text)| format!("{line}{text}")).collect::<Vec<_>>()
            })
        };
        assert_eq!(values("os").unwrap(), ["7u", "7w", "13m"]);
        assert_eq!(values("target.runner").unwrap(), ["9r1", "10r2"]);
        assert_eq!(values("only").unwrap(), ["14o"]);
        assert_eq!((values("late"), values("none"), values("target.other")), (None, None, None));
        assert_eq!(jobs[0].steps.len(), 2);
    }
}
