//! The demonstration's workflows: three runs whose jobs record where they ran, leave files behind, and look for files
//! of others.

use crate::github::JobSpec;
use runyard_core::model::{RequestKey, label};

/// The repository that does not exist.
pub(super) const REPOSITORY: &str = "demo/app";

/// One workflow run.
pub(super) struct RunPlan {
    pub(super) run_id: u64,
    pub(super) title: &'static str,
    pub(super) requests: &'static [RequestPlan],
}

/// One request of a run, and the jobs that want its label.
pub(super) struct RequestPlan {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) machines: u32,
    pub(super) jobs: u32,
}

/// The three runs, one after the other.
pub(super) const RUNS: [RunPlan; 3] = [
    RunPlan {
        run_id: 101,
        title: "Run 101 finds an empty yard: its machines boot first (3 s)",
        requests: &[RequestPlan { name: "default", class: "small", machines: 2, jobs: 3 }],
    },
    RunPlan {
        run_id: 102,
        title: "Run 102 comes after it: it claims what run 101 gave back",
        requests: &[RequestPlan { name: "default", class: "small", machines: 2, jobs: 3 }],
    },
    RunPlan {
        run_id: 103,
        title: "Run 103 wants two classes at once",
        requests: &[
            RequestPlan { name: "default", class: "small", machines: 1, jobs: 2 },
            RequestPlan { name: "large", class: "large", machines: 1, jobs: 2 },
        ],
    },
];

/// Each line is one `write` of less than a page, so that lines of simultaneous jobs do not mix.
const SCRIPT: &str = r#"
say() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$GITHUB_JOB" "$GITHUB_RUN_ID" "$RUNNER_NAME" "$2" >> "$DEMO_RESULTS"
}
say ran "$$"
while IFS="$(printf '\t')" read -r word job run runner what; do
  [ "$run" != "$GITHUB_RUN_ID" ] || continue
  case "$word" in
    left) if [ "$what" != "$HOME" ] && [ -e "$what" ]; then say saw "$what"; fi ;;
    started) if grep -qsz "^DEMO_RUN=$run\$" "/proc/$what/environ"; then say saw "process $what"; fi ;;
  esac
done < "$DEMO_RESULTS"
for place in "$GITHUB_WORKSPACE" "$HOME" "${TMPDIR:-$RUNNER_TEMP}"; do
  for old in "$place"/demo-canary-*; do
    case "$old" in
      */demo-canary-"$GITHUB_RUN_ID"|*/demo-canary-\*) ;;
      *) say saw "$old" ;;
    esac
  done
  touch "$place/demo-canary-$GITHUB_RUN_ID"
  say left "$place/demo-canary-$GITHUB_RUN_ID"
done
say left "$HOME"
RUNNER_TRACKING_ID= setsid sleep 600 < /dev/null > /dev/null 2>&1 &
say started "$!"
sleep 0.2
echo "job $GITHUB_JOB of run $GITHUB_RUN_ID ran on $RUNNER_NAME"
"#;

impl RequestPlan {
    /// Returns its jobs, which append their observations to `results`.
    pub(super) fn jobs(&self, request: &RequestKey, results: &str) -> Vec<JobSpec> {
        let job = |number| JobSpec {
            name: format!("{}-{}-{number}", request.run_id, self.name),
            runs_on: vec![label(request)],
            steps: vec![SCRIPT.to_owned()],
            env: [
                ("DEMO_RESULTS".to_owned(), results.to_owned()),
                ("DEMO_RUN".to_owned(), request.run_id.to_string()),
            ]
            .into(),
            ..JobSpec::default()
        };
        (1..=self.jobs).map(job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::results::{Line, Word, parse};
    use runyard_core::model::{Repository, RequestName, RunId};

    #[test]
    fn there_are_at_least_eight_jobs() {
        let jobs: u32 = RUNS.iter().flat_map(|run| run.requests).map(|request| request.jobs).sum();
        assert!(jobs >= 8, "{jobs}");
    }

    fn run(run_id: u64, home: &std::path::Path, results: &std::path::Path) {
        let key = RequestKey {
            repository: Repository::parse(REPOSITORY).unwrap(),
            run_id: RunId::parse(&run_id.to_string()).unwrap(),
            name: RequestName::default_name(),
            attempt: 1,
        };
        let job = RUNS[0].requests[0].jobs(&key, results.to_str().unwrap()).remove(0);
        let script = format!("{}\nkill $!", job.steps[0]);
        let status = std::process::Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", &script])
            .envs(&job.env)
            .env("HOME", home)
            .env("GITHUB_WORKSPACE", home)
            .env("TMPDIR", home)
            .env("GITHUB_JOB", &job.name)
            .env("GITHUB_RUN_ID", run_id.to_string())
            .env("RUNNER_NAME", "runyard-i-1.2")
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }

    #[test]
    fn a_job_sees_what_another_run_left_and_minds_nothing_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("results");
        std::fs::write(&results, "").unwrap();
        let saw = |run: u64| {
            let lines = parse(&std::fs::read_to_string(&results).unwrap()).unwrap();
            lines
                .into_iter()
                .filter(|line: &Line| line.word == Word::Saw && line.run_id == run.to_string())
                .count()
        };
        run(101, dir.path(), &results);
        run(101, dir.path(), &results);
        assert_eq!(saw(101), 0);
        run(102, dir.path(), &results);
        assert!(saw(102) >= 1);
    }
}
