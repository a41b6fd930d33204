"""Do the example workflows work as they are written? Each file is read, and its jobs are played in their order: jobs on
GitHub's runners here, with the actions' own scripts and the real command line; jobs on borrowed machines by the stand-in
GitHub of `runyard up`, one for each cell of the matrix. What a job calls of its repository or image (`make`, `npm`, `docker`)
only notes that it was called; `actions/checkout`, the AWS login and services are left out (tests/system/containers runs real
ones)."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/system"))
import verbs  # noqa: E402

PROGRAM = os.environ["RUNYARD_BIN"]
REPOSITORY = "demo/app"
OURS = "OWNER/runyard/"
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<call>[a-z]+)\(\)|(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*)|(?P<sign>&&|\|\||==|!=|!|[()]))\s*")
SIGNS = {"&&": " and ", "||": " or ", "!": " not "}
NOTED = ("make", "npm", "docker")
"""What jobs call, and only note here."""
CLASSES = ("containers", "cached", "untrusted")
"""The classes of the examples beside those of local mode; what they give their jobs has tests of its own."""
BY_LABEL = {
    "config/workflows/example.yml": ["small"],
    "examples/label-only.yml": ["small"],
    "examples/matrix.yml": ["small"],
    "examples/two-pools.yml": ["small", "large"],
    "examples/containers.yml": ["containers"],
    "examples/kept-caches.yml": ["cached"],
}
"""Workflows whose labels alone ask for machines, with the classes that they name."""
WITH_A_JOB_THAT_ASKS = ("examples/gang.yml", "examples/wishes.yml")
SETTINGS = {"RUNYARD_GITHUB__RERUNS": "false", "RUNYARD_GITHUB__RUN_POLL": "1s", "RUNYARD_STAND_IN_PACKAGE": "unpaced"}
"""Of the operator: it asks for no machines of a re-run itself, as rerun-failed.yml has it, and sees soon that a run is over."""
LIMIT = 600
"""Seconds after which what hangs is given up: it judges nothing."""


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def until(what, look):
    """The first answer that is true."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {LIMIT} s for {what}")


def evaluate(text, contexts, calls=()):
    """What an expression of GitHub's is, of those that the examples have: names, texts, operators, functions without arguments."""

    def looked_up(name):
        found = contexts
        for part in name.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        return found

    python, at = "", 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token, f"an expression that this test cannot evaluate: {text[at:]}"
        at = token.end()
        if token["text"]:
            python += repr(token["text"][1:-1].replace("''", "'"))
        elif token["call"]:
            python += repr(dict(calls)[token["call"]])
        elif token["name"]:
            python += repr(looked_up(token["name"]))
        else:
            # Python's `not` binds less than its `==`, GitHub's `!` more.
            assert token["sign"] != "!" or re.match(r"\(|[a-z]+\(\)", text[at:]), f"a `!` that this test cannot evaluate: {text}"
            python += SIGNS.get(token["sign"], token["sign"])
    return eval(python, {"__builtins__": {}})  # Of literals and operators alone.


def fill(text, contexts):
    """The text with its expressions evaluated."""

    def value(match):
        found = evaluate(match[1], contexts)
        return found if isinstance(found, str) else json.dumps(found)

    return str(text).lower() if isinstance(text, bool) else EXPRESSION.sub(value, str(text))


class Yard:
    """A served data directory."""

    def __init__(self, scratch):
        self.scratch = pathlib.Path(scratch)
        self.dir = self.scratch / "yard"
        self.log = self.scratch / "up.log"

    @contextlib.contextmanager
    def up(self):
        with self.log.open("wb") as log:
            program = subprocess.Popen([PROGRAM, "up", "--dir", self.dir], stdout=log, stderr=log, env=os.environ | SETTINGS)
        try:
            until("the yard", lambda: "Runyard is up" in self.log.read_text() or program.poll() is not None)
            assert program.poll() is None, self.log.read_text()
            lines = (self.dir / "env").read_text().splitlines()
            pairs = (line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
            self.environment = {name: value.strip("'\"") for name, value in pairs}
            self.github = f"http://127.0.0.1:{(self.dir / 'github' / 'api.port').read_text().strip()}"
            self.token = (self.dir / "github" / "github-token").read_text().strip()
            yield self
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(LIMIT)

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        path = path if path.startswith("/repos/") else f"/_workflow/runs{path}"
        asked = urllib.request.Request(self.github + path, data, {"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
            return json.load(answer)

    def ended(self, run_id, attempt):
        """The jobs of an attempt, once they have ended."""
        def over():
            jobs = [job for job in self.call(f"/{run_id}")["jobs"] if job["attempt"] == attempt]
            return jobs if jobs and all(job["status"] == "completed" for job in jobs) else None
        return until(f"attempt {attempt} of run {run_id}", over)

    def given_back(self, run_id):
        """All requests of the run are over, and no machine serves it any more."""
        requests = [one for one in self.verb("get", "requests", "--all") if str(one["runId"]) == str(run_id)]
        machines = [one for one in self.verb("get", "instances") if str(one.get("runId", "")) == str(run_id)]
        return requests and not machines and all(one["phase"] == "Released" for one in requests)

    def verb(self, *arguments, given=""):
        told = verbs.said([PROGRAM, *arguments, "-o", "json"], env=os.environ | self.environment, input=given)
        return json.loads(told).get("items")


class Play:
    """One workflow's run. `meanwhile`: what else goes on once jobs wait for borrowed machines."""

    def __init__(self, yard, path, run_id, inputs=None, event=None, meanwhile=lambda: None):
        self.yard, self.path, self.run_id, self.meanwhile = yard, path, run_id, meanwhile
        self.jobs = load(path)["jobs"]
        self.inputs, self.needs, self.called = inputs or {}, {}, []
        event_name = next((name for name in event or {} if name != "action"), "push")
        self.github = {"token": "none", "run_id": str(run_id), "repository": REPOSITORY, "event": event or {}, "event_name": event_name}
        self.results = yard.scratch / f"{run_id}.results"

    def order(self):
        done = []
        while len(done) < len(self.jobs):
            ready = [n for n, job in self.jobs.items() if n not in done and set(needs_of(job)) <= set(done)]
            assert ready, f"{self.path.name}: jobs need each other: {self.jobs.keys() - set(done)}"
            done += ready
        return done

    def play(self):
        for name in self.order():
            job = self.jobs[name]
            if not self.wanted(job):
                self.needs[name] = {"outputs": {}, "result": "skipped"}
                continue
            label = fill(job["runs-on"], {"needs": self.needs, "github": self.github})
            assert label, f"{self.path.name}: {name} has an empty label"
            outputs = self.hosted(job) if label.startswith("ubuntu-") else self.borrowed(name, job, label)
            self.needs[name] = {"outputs": outputs, "result": "success"}

    def wanted(self, job):
        """By its condition, to which GitHub adds `success()` where it asks for no status itself."""
        results = [self.needs[name]["result"] for name in needs_of(job)]
        calls = {"always": True, "cancelled": False, "failure": "failure" in results, "success": set(results) <= {"success"}}
        condition = EXPRESSION.sub(r"\1", str(job.get("if", "success()")))
        if not any(f"{name}()" in condition for name in calls):
            condition = f"success() && ({condition})"
        return evaluate(condition, {"needs": self.needs, "github": self.github}, calls)

    def hosted(self, job):
        """A job of GitHub's runner, here."""
        steps = {}
        for number, step in enumerate(job["steps"]):
            uses = step.get("uses", "")
            contexts = {"steps": steps, "inputs": self.inputs, "needs": self.needs, "github": self.github}
            if "run" in step:
                environment = {k: fill(v, contexts) for k, v in step.get("env", {}).items()}
                outputs = self.script(step["run"], environment)
            elif uses.startswith(OURS):
                action = ROOT / uses.removeprefix(OURS).partition("@")[0]
                document = load(action / "action.yml")
                given = {n: str(one.get("default", "")) for n, one in document["inputs"].items()}
                given |= {n: fill(v, contexts) for n, v in step.get("with", {}).items()} | {"program": PROGRAM}
                (inner,) = document["runs"]["steps"]
                environment = {k: fill(v, {"inputs": given}) for k, v in inner["env"].items()}
                outputs = self.script(inner["run"], environment | {"GITHUB_ACTION_PATH": str(action)})
                self.called.append(action.name)
            else:
                assert re.match(r"(actions/checkout|aws-actions/configure-aws-credentials)@", uses), uses
                outputs = {}
            steps[step.get("id", str(number))] = {"outputs": outputs}
        return {n: fill(v, {"steps": steps}) for n, v in job.get("outputs", {}).items()}

    def script(self, text, environment):
        output = self.yard.scratch / "output"
        output.write_text("")
        bin_ = self.yard.scratch / "bin"
        given = {
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.yard.scratch),
            "GITHUB_ACTIONS": "true",
            "GITHUB_RUN_ID": str(self.run_id),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.yard.scratch / "summary"),
        }
        command = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
        ended = verbs.run(command, env=given | self.yard.environment | environment)
        assert ended.returncode == 0, f"{self.path.name}: {text}\n{ended.stdout}{ended.stderr}"
        return dict(line.split("=", 1) for line in output.read_text().splitlines() if "=" in line)

    def borrowed(self, name, job, label):
        """A job on borrowed machines, once for each cell of its matrix."""
        matrix = job.get("strategy", {}).get("matrix", {})
        cells = [dict(zip(matrix, values)) for values in itertools.product(*matrix.values())]
        scripts = [step for step in job["steps"] if "run" in step]
        specs = []
        for cell in cells:
            contexts = {"matrix": {key: str(value) for key, value in cell.items()}}
            environment = {k: fill(v, contexts) for step in scripts for k, v in step.get("env", {}).items()}
            note = "".join(f'{name}() {{ echo "{name} $*" >>"$RESULTS"; }}\n' for name in NOTED)
            specs.append({
                "name": f"{name} {list(cell.values())}",
                "runs_on": [label],
                "steps": [note + step["run"] for step in scripts],
                "env": environment | {"RESULTS": str(self.results)},
            })
        before = len(self.noted())
        self.yard.call(f"/{self.run_id}/jobs", {"jobs": specs, "open": True})
        self.meanwhile()
        jobs = self.yard.ended(self.run_id, 1)
        assert all(one["conclusion"] == "success" for one in jobs), jobs
        noted = self.noted()[before:]
        calls = sum(line.split()[:1] != [] and line.split()[0] in NOTED for step in scripts for line in step["run"].splitlines())
        assert calls and len(noted) == len(cells) * calls == len(set(noted)), f"{name}: {noted}"
        return {}

    def noted(self):
        return self.results.read_text().splitlines() if self.results.exists() else []


def needs_of(job):
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def by_label(yard, path, run_id, classes):
    """A workflow without a job that asks: its labels name its run and these classes."""
    yard.call("", {"repository": REPOSITORY, "run_id": run_id, "open": True})
    play = Play(yard, path, run_id)
    play.play()
    assert play.called == [], play.called
    asked = [one for one in yard.verb("get", "requests", "--all") if str(one["runId"]) == str(run_id)]
    made = sorted((one["asked"], one["name"], one["resourceClass"]) for one in asked)
    assert made == [("job", name, name) for name in sorted(classes)], asked
    # One machine may have run all jobs before the operator looked.
    assert all(one["count"] >= 1 for one in asked), asked
    yard.call(f"/{run_id}/jobs", {"open": False})
    until(f"{path.name}: the operator to take the machines back", lambda: yard.given_back(run_id))
    print(f"{path.name}: its jobs made {len(play.noted())} calls, nobody asked for machines, and all came back", flush=True)


def pull_requests(yard):
    """The pair of workflows for pull requests: one of the repository's own branches, and one of a fork."""
    own, lends = ROOT / "config/workflows/pull-requests.yml", ROOT / "config/workflows/forks.yml"
    for run_id, head in ((301, REPOSITORY), (302, "mallory/app")):
        of_fork = head != REPOSITORY
        yard.call("", {"repository": REPOSITORY, "run_id": run_id, "open": True})
        run = {"id": str(run_id), "run_attempt": "1", "event": "pull_request", "head_repository": {"full_name": head}}

        def lend(action, run=run, run_id=run_id, conclusion=""):
            play = Play(yard, lends, run_id + 10, event={"action": action, "workflow_run": run | {"conclusion": conclusion}})
            play.play()
            return play.called

        event = {"pull_request": {"head": {"repo": {"full_name": head}}}}
        lent = []
        play = Play(yard, own, run_id, event=event, meanwhile=lambda: lent.extend(lend("in_progress")))
        play.play()
        yard.call(f"/{run_id}/jobs", {"open": False})
        lent += lend("completed", conclusion="success")
        called = ["provision", "release"]
        assert (play.called, lent) == (([], called) if of_fork else (called, [])), (head, play.called, lent)
        assert play.needs["test"]["result"] == "success", play.needs
        until(f"the machine of the pull request of {head}", lambda: yard.given_back(run_id))
        print(f"{own.name} and {lends.name}: the pull request of {head} had its machine, and gave it back", flush=True)


def run_again(yard):
    """A job fails, the run is over, its machine is given back; "Re-run failed jobs", and somebody starts the workflow for that."""
    path, run_id = ROOT / "examples/rerun-failed.yml", 201
    asked = ("--run-id", str(run_id), "--repository", REPOSITORY)
    step = '[ -e "$RESULTS" ] || { touch "$RESULTS"; exit 1; }'
    spec = {"name": "again", "runs_on": [str(run_id)], "steps": [step], "env": {"RESULTS": str(yard.scratch / "again")}}
    yard.call("", {"repository": REPOSITORY, "run_id": run_id, "jobs": [spec]})
    yard.verb("provision", *asked, "--class", "small", "--count", "1", "--wait")
    assert [job["conclusion"] for job in yard.ended(run_id, 1)] == ["failure"]
    yard.verb("release", *asked, "--wait")
    yard.call(f"/repos/{REPOSITORY}/actions/runs/{run_id}/rerun-failed-jobs", {})
    (yard.scratch / "bin").mkdir()
    gh = yard.scratch / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\n[ "$1 $2" = "api repos/{REPOSITORY}/actions/runs/{run_id}" ] && echo 2\n')
    gh.chmod(0o755)
    Play(yard, path, 202, {"run-id": str(run_id), "name": "default", "class": "small", "count": "1"}).play()
    assert [job["conclusion"] for job in yard.ended(run_id, 2)] == ["success"]
    until(f"{path.name}: the operator to take the machine back", lambda: yard.given_back(run_id))
    print(f"{path.name}: the job that failed has run again, and its machine came back", flush=True)


def main():
    with tempfile.TemporaryDirectory() as scratch, Yard(scratch).up() as yard:
        pools = "".join(f"- {{resourceClass: {name}, cpu: 1, mmem: 1024, max: 4, queue: {{runLabels: true}}}}\n" for name in CLASSES)
        yard.verb("apply", "-f", "-", given="pools:\n" + pools)
        for run_id, (name, classes) in enumerate(BY_LABEL.items(), 101):
            by_label(yard, ROOT / name, run_id, classes)
        for run_id, name in enumerate(WITH_A_JOB_THAT_ASKS, 121):
            path = ROOT / name
            yard.call("", {"repository": REPOSITORY, "run_id": run_id, "open": True})
            play = Play(yard, path, run_id)
            play.play()
            assert "provision" in play.called and "release" in play.called, play.called
            until(f"{path.name}: the machines to be given back", lambda: yard.given_back(run_id))
            yard.call(f"/{run_id}/jobs", {"open": False})
            print(f"{path.name}: its jobs made {len(play.noted())} calls, and all machines came back", flush=True)

        pull_requests(yard)
        run_again(yard)


if __name__ == "__main__":
    sys.exit(main())
