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
PROGRAM = os.environ["RUNYARD_BIN"]
REPOSITORY = "demo/app"
OURS = "OWNER/runyard/"
EXPRESSION = re.compile(r"\$\{\{\s*([\w-]+(?:\.[\w-]+)+)\s*\}\}")
NOTED = ("make", "npm", "docker")
"""What jobs call, and only note here."""
CLASSES = ("containers", "cached")
"""The classes of the examples beside those of local mode; what they give their jobs has tests of its own."""
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


def fill(text, contexts):
    """The text with its expressions evaluated, as far as the examples have any: names, no operators."""

    def value(match):
        found = contexts
        for name in match[1].split("."):
            found = found.get(name, "") if isinstance(found, dict) else ""
        return found if isinstance(found, str) else json.dumps(found)

    if isinstance(text, bool):
        return str(text).lower()
    filled = EXPRESSION.sub(value, str(text))
    assert "${{" not in filled, f"an expression that this test cannot evaluate: {filled}"
    return filled


class Yard:
    """A served data directory."""

    def __init__(self, scratch):
        self.scratch = pathlib.Path(scratch)
        self.dir = self.scratch / "yard"
        self.log = self.scratch / "up.log"

    @contextlib.contextmanager
    def up(self):
        with self.log.open("wb") as log:
            program = subprocess.Popen([PROGRAM, "up", "--dir", self.dir], stdout=log, stderr=log)
        try:
            until("the yard", lambda: "Runyard is up" in self.log.read_text() or program.poll() is not None)
            assert program.poll() is None, self.log.read_text()
            lines = (self.dir / "env").read_text().splitlines()
            pairs = (line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
            self.environment = {name: value.strip("'\"") for name, value in pairs}
            self.github = f"http://127.0.0.1:{(self.dir / 'github' / 'api.port').read_text().strip()}/_workflow/runs"
            self.token = (self.dir / "github" / "github-token").read_text().strip()
            yield self
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(60)

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.github + path, data, {"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
            return json.load(answer)

    def verb(self, *arguments, given=""):
        ended = subprocess.run(
            [PROGRAM, *arguments, "-o", "json"], env=os.environ | self.environment, capture_output=True, text=True, timeout=LIMIT, input=given
        )
        assert ended.returncode == 0, ended
        return json.loads(ended.stdout).get("items")


class Play:
    """One workflow's run."""

    def __init__(self, yard, path, run_id, inputs=None):
        self.yard, self.path, self.run_id = yard, path, run_id
        self.jobs = load(path)["jobs"]
        self.inputs, self.needs, self.called = inputs or {}, {}, []
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
            label = fill(job["runs-on"], {"needs": self.needs})
            assert label, f"{self.path.name}: {name} has an empty label"
            outputs = self.hosted(job) if label.startswith("ubuntu-") else self.borrowed(name, job, label)
            self.needs[name] = {"outputs": outputs, "result": "success"}

    def hosted(self, job):
        """A job of GitHub's runner, here."""
        steps = {}
        for number, step in enumerate(job["steps"]):
            uses = step.get("uses", "")
            contexts = {"steps": steps, "inputs": self.inputs, "needs": self.needs}
            if "run" in step:
                environment = {k: fill(v, contexts | {"github": {"token": "none"}}) for k, v in step.get("env", {}).items()}
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
        ended = subprocess.run(
            command, env=given | self.yard.environment | environment, capture_output=True, text=True, timeout=LIMIT
        )
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

        def over():
            jobs = self.yard.call(f"/{self.run_id}")["jobs"]
            return jobs if all(one["status"] == "completed" for one in jobs) else None

        jobs = until(f"{self.path.name}: {name}", over)
        assert all(one["conclusion"] == "success" for one in jobs), jobs
        noted = self.noted()[before:]
        calls = sum(line.split()[:1] != [] and line.split()[0] in NOTED for step in scripts for line in step["run"].splitlines())
        assert calls and len(noted) == len(cells) * calls == len(set(noted)), f"{name}: {noted}"
        return {}

    def noted(self):
        return self.results.read_text().splitlines() if self.results.exists() else []

    def given_back(self):
        """All requests of the run are over, and none of its machines serves it any more."""
        requests = [one for one in self.yard.verb("get", "requests", "--all") if str(one["runId"]) == str(self.run_id)]
        machines = [one for one in self.yard.verb("get", "instances") if str(one.get("runId", "")) == str(self.run_id)]
        return requests and not machines and all(one["phase"] == "Released" for one in requests)


def needs_of(job):
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def main():
    with tempfile.TemporaryDirectory() as scratch, Yard(scratch).up() as yard:
        pools = "".join(f"- {{resourceClass: {name}, cpu: 1, mmem: 1024, max: 4}}\n" for name in CLASSES)
        yard.verb("apply", "-f", "-", given="pools:\n" + pools)
        workflows = [ROOT / "config/workflows/example.yml"]
        workflows += [ROOT / f"examples/{name}.yml" for name in ("matrix", "two-pools", "containers", "kept-caches")]
        for run_id, path in enumerate(workflows, 101):
            yard.call("", {"repository": REPOSITORY, "run_id": run_id, "open": True})
            play = Play(yard, path, run_id)
            play.play()
            assert "provision" in play.called and "release" in play.called, play.called
            until(f"{path.name}: the machines to be given back", play.given_back)
            yard.call(f"/{run_id}/jobs", {"open": False})
            print(f"{path.name}: its jobs made {len(play.noted())} calls, and all machines came back", flush=True)

        # The jobs of a run that wait for a label; then somebody asks in its name, by the workflow for that.
        path = ROOT / "examples/rerun-failed.yml"
        waiting = 201
        (yard.scratch / "bin").mkdir()
        gh = yard.scratch / "bin" / "gh"
        gh.write_text('#!/bin/sh\n[ "$1 $2" = "api repos/demo/app/actions/runs/201" ] && echo 1\n')
        gh.chmod(0o755)
        spec = {"name": "again", "runs_on": [str(waiting)], "steps": ["true"]}
        yard.call("", {"repository": REPOSITORY, "run_id": waiting, "jobs": [spec], "open": True})
        Play(yard, path, 202, {"run-id": str(waiting), "name": "default", "class": "small", "count": "1"}).play()
        until("the job that waited", lambda: yard.call(f"/{waiting}")["jobs"][0]["conclusion"] == "success")
        print(f"{path.name}: the job that waited has run", flush=True)


if __name__ == "__main__":
    sys.exit(main())
