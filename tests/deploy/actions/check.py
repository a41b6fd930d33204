"""Do the composite actions hand their inputs on as values, whatever is in them? Each step is run as GitHub runs it: its
environment filled in, its script by bash; in place of the command line stands one that writes down how it was called.
And: no script holds an expression, and the example names only inputs and outputs that there are."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
ACTIONS = ROOT / "config" / "actions"
WORKFLOWS = sorted([*(ROOT / "config" / "workflows").glob("*.yml"), *(ROOT / "examples").glob("*.yml")])
OURS = "OWNER/runyard/"
EXPRESSION = re.compile(r"\$\{\{\s*inputs\.([a-z0-9-]+)\s*\}\}")
STUB = """#!/usr/bin/env python3
import json, os, sys
said = {name.lower(): os.environ.get("RUNYARD_" + name) for name in ("TABLE", "PAGE")}
json.dump({"arguments": sys.argv[1:], **said}, open(os.environ["CALLED"], "w"))
sys.exit(int(os.environ.get("ENDS", "0")))
"""
HARM = ["$(touch HARM)", "`touch HARM`", "a; touch HARM", "--wait", "a' \" b", "a\nphase=Ready", "*", "${IFS}touch${IFS}HARM"]


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def inputs(action):
    return {name: str(one.get("default", "")) for name, one in action["inputs"].items()}


class Place:
    def __init__(self, scratch):
        self.scratch = pathlib.Path(scratch)
        self.stub = self.scratch / "bin" / "runyard"
        self.stub.parent.mkdir()
        self.stub.write_text(STUB)
        self.stub.chmod(0o755)

    def run(self, name, given, more=None, path=None, actions=ACTIONS):
        """The action's one step; what the command line was called with, and how it all ended."""
        action = load(actions / name / "action.yml")
        values = inputs(action) | given
        (step,) = action["runs"]["steps"]
        called = self.scratch / "called.json"
        called.unlink(missing_ok=True)
        environment = {
            "PATH": path or f"{self.stub.parent}:{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(actions / name),
            "RUNNER_TEMP": str(self.scratch),
            "CALLED": str(called),
        }
        environment |= {key: EXPRESSION.sub(lambda m: values[m[1]], text) for key, text in step["env"].items()}
        command = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        ended = subprocess.run(
            command, env=environment | (more or {}), cwd=self.scratch, capture_output=True, text=True, timeout=60
        )
        return (json.loads(called.read_text()) if called.exists() else None), ended

    def holds(self, condition, words):
        assert condition, words
        assert not (self.scratch / "HARM").exists(), f"an input was executed: {words}"


def expressions_are_kept_out_of_scripts():
    for path in [*ACTIONS.glob("*/action.yml"), *WORKFLOWS]:
        document = load(path)
        jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
        for step in (step for job in jobs for step in job["steps"]):
            assert "${{" not in step.get("run", ""), f"{path}: an expression in a script: {step['run']}"
            uses = step.get("uses", "./")
            ours = uses.startswith("./") or uses.startswith(OURS) and uses.endswith("@v0")
            assert ours or re.search(r"@[0-9a-f]{40}$", uses), f"{path}: not pinned: {uses}"


def the_workflows_name_what_there_is():
    used = set()
    for step in (step for path in WORKFLOWS for job in load(path)["jobs"].values() for step in job["steps"]):
        if not step.get("uses", "").startswith(OURS):
            continue
        name = step["uses"].removeprefix(OURS).partition("@")[0]
        action = load(ROOT / name / "action.yml")
        unknown = set(step.get("with", {})) - set(action["inputs"])
        missing = {n for n, one in action["inputs"].items() if one.get("required")} - set(step.get("with", {}))
        assert not unknown and not missing, f"{step['uses']}: unknown {unknown}, missing {missing}"
        used.add(pathlib.Path(name).name)
    assert used == {"provision", "release"}, used


def nothing_of_a_fork_runs_where_the_role_is():
    """A job that can become the role runs no code of a fork, in any workflow; a fork's run never has such a job."""
    for path in WORKFLOWS:
        workflow = load(path)
        events = workflow[True]
        for name, job in workflow["jobs"].items():
            if job.get("permissions", {}).get("id-token") != "write":
                continue
            refs = [step["with"]["ref"] for step in job["steps"] if "ref" in step.get("with", {})]
            assert not refs, f"{path}: {name} checks out {refs}"
            assert "pull_request_target" not in events, f"{path}: {name} runs in the name of a pull request"
            if "pull_request" in events and path.stem != "example":
                assert "head.repo.full_name == github.repository" in job["if"], f"{path}: {name} runs for forks"
            if "workflow_run" in events:
                assert job.get("environment") or "completed" in job["if"], f"{path}: {name} asks nobody"


def inputs_are_values(place):
    called, ended = place.run("provision", {"class": "small", "count": "2"})
    wanted = ["provision", "--class=small", "--count=2", "--name=default", "--timeout=10m", "--wait"]
    place.holds(called == {"arguments": wanted, "table": None, "page": None}, (called, ended))
    called, ended = place.run("release", {"table": "yard", "wait": "true"})
    place.holds(called == {"arguments": ["release", "--name=default", "--wait"], "table": "yard", "page": None}, (called, ended))
    called, ended = place.run("provision", {"page": HARM[0]})
    place.holds(called is not None and called["page"] == HARM[0], (called, ended))
    for name in ("provision", "release"):
        flags = {"on-demand-fallback", "secret-label", "wait"}
        elsewhere = {"url", "sha256", "program", "table", "page"} | flags
        texts = [one for one in inputs(load(ACTIONS / name / "action.yml")) if one not in elsewhere]
        for harm in HARM:
            called, ended = place.run(name, dict.fromkeys(texts, harm))
            place.holds(called is not None, ended)
            arguments = set(called["arguments"][1:])
            wanted = {f"--{text}={harm}" for text in texts} | ({"--wait"} if name == "provision" else set())
            place.holds(arguments == wanted, (harm, called))
            for flag in flags & set(inputs(load(ACTIONS / name / "action.yml"))):
                called, ended = place.run(name, {flag: harm})
                place.holds(called is None and ended.returncode == 2 and "neither true nor false" in ended.stderr, ended)
            called, ended = place.run(name, {"program": harm})
            place.holds(called is None and ended.returncode == 1 and "::error::program" in ended.stderr, ended)
            called, ended = place.run(name, {"url": harm, "sha256": "0" * 64})
            place.holds(called is None and ended.returncode != 0, ended)


def its_end_is_the_steps_end(place):
    for code in (0, 1, 3, 4):
        _, ended = place.run("provision", {"class": "small"}, {"ENDS": str(code)})
        assert ended.returncode == code, ended


def what_is_fetched_is_checked(place):
    called, ended = place.run("release", {"url": "https://127.0.0.1:1/runyard", "sha256": "abc"})
    assert called is None and ended.returncode == 2 and "::error::sha256" in ended.stderr, ended
    # A `curl` that brings another program than the pinned one.
    curl = place.stub.parent / "curl"
    curl.write_text('#!/bin/bash\nwhile [ "$1" != --output ]; do shift; done\ncp "$(dirname "$0")/runyard" "$2"\n')
    curl.chmod(0o755)
    called, ended = place.run("release", {"url": "https://example.com/runyard", "sha256": "0" * 64})
    assert called is None and ended.returncode == 1 and "another SHA-256" in ended.stderr, ended
    digest = subprocess.run(["sha256sum", place.stub], capture_output=True, text=True, check=True).stdout.split()[0]
    called, ended = place.run("release", {"url": "https://example.com/runyard", "sha256": digest})
    assert called is not None and ended.returncode == 0, ended
    curl.unlink()


def a_released_action_brings_its_own_program(place):
    """With nothing installed and no `url`: from the list in the release's commit, for this machine, by its digest."""
    bare = "/usr/bin:/bin"
    called, ended = place.run("release", {}, path=bare)
    assert called is None and ended.returncode == 1 and "::error::program" in ended.stderr, ended
    released = place.scratch / "released"
    shutil.copytree(ACTIONS, released)
    digest = subprocess.run(["sha256sum", place.stub], capture_output=True, text=True, check=True).stdout.split()[0]
    here = f"https://example.com/v0.1.0/runyard-linux-{platform.machine()}"
    (released / "programs").write_text(
        f"# A note.\n{'1' * 64}  https://example.com/v0.1.0/runyard-linux-other\n{digest}  {here}\n"
    )
    tools = place.scratch / "tools"
    tools.mkdir()
    curl = tools / "curl"
    curl.write_text(
        '#!/bin/bash\nwhile [ "$1" != --output ]; do shift; done\n'
        f'[ "${{@: -1}}" = "{here}" ] && cp "{place.stub}" "$2"\n'
    )
    curl.chmod(0o755)
    (place.scratch / f"runyard-{digest}").unlink(missing_ok=True)
    called, ended = place.run("release", {}, path=f"{tools}:{bare}", actions=released)
    assert called == {"arguments": ["release", "--name=default"], "table": None, "page": None}, (called, ended)
    # An installed one comes first; a name that is not installed is never replaced by the released one.
    called, ended = place.run("release", {"program": "other"}, path=f"{tools}:{bare}", actions=released)
    assert called is None and ended.returncode == 1 and "::error::program" in ended.stderr, ended
    # The file at the address was changed after the release.
    (place.scratch / f"runyard-{digest}").unlink()
    curl.write_text('#!/bin/bash\nwhile [ "$1" != --output ]; do shift; done\necho changed >"$2"\n')
    called, ended = place.run("release", {}, path=f"{tools}:{bare}", actions=released)
    assert called is None and ended.returncode == 1 and "another SHA-256" in ended.stderr, ended
    assert not (place.scratch / f"runyard-{digest}").exists(), "what was refused was kept"


def main():
    expressions_are_kept_out_of_scripts()
    the_workflows_name_what_there_is()
    nothing_of_a_fork_runs_where_the_role_is()
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(scratch)
        inputs_are_values(place)
        its_end_is_the_steps_end(place)
        what_is_fetched_is_checked(place)
        a_released_action_brings_its_own_program(place)
    print("the actions hand their inputs on as values, and the example fits them")


if __name__ == "__main__":
    sys.exit(main())
