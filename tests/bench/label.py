"""How long a job waits whose label asks for its machine: from the moment at which the stand-in GitHub has it to the first
command of its first step, each job in a run of its own. Local mode rings for queued jobs, as GitHub's webhook does.

    RUNYARD_BIN=target/debug/runyard python3 tests/bench/label.py [RUNS]    (default 12)

Prints the median and the range in seconds, for a runner that takes as long as GitHub's and for one that takes no time."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

RUNYARD = os.environ.get("RUNYARD_BIN", "runyard")
WITHIN = 120
PAUSE = 3
"""Seconds between two runs: a repository is looked at once in two seconds, and was looked at for the end of the last run."""


def until(what: str, holds):
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.005)
    raise SystemExit(f"{what}: not within {WITHIN} s")


class Yard:
    """A yard of local mode with two warm machines."""

    def __init__(self, dir: Path, package: str):
        settings = {"RUNYARD_STAND_IN_PACKAGE": package, "RUNYARD_GITHUB__RUN_POLL": "60s"}
        log = (dir.parent / "up.log").open("wb")
        command = [RUNYARD, "up", "--dir", str(dir)]
        self.up = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        self.dir = dir
        port = until("the stand-in", lambda: (dir / "github/api.port").is_file() and (dir / "github/api.port").read_text())
        until("the token", (dir / "github/github-token").is_file)
        self.url, self.token = f"http://127.0.0.1:{port.strip()}", (dir / "github/github-token").read_text().strip()
        until("the classes", lambda: self.verb("set", "pool", "small", "desired=2").returncode == 0)
        until("warm machines", lambda: self.idle() >= 2)

    def verb(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([RUNYARD, "--yard", str(self.dir), *words], capture_output=True, text=True)

    def idle(self) -> int:
        listed = self.verb("get", "instances", "-o", "json")
        machines = json.loads(listed.stdout)["items"] if listed.returncode == 0 else []
        return sum(one["state"] == "idle" and "pooledAt" in one and one["resourceClass"] == "small" for one in machines)

    def post(self, path: str, body: dict) -> None:
        request = urllib.request.Request(
            f"{self.url}/_workflow/runs{path}", json.dumps(body).encode(), {"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    def waits(self, run: int) -> float:
        """Queues one job and tells how long it waited."""
        began = self.dir.parent / f"began-{run}"
        step = f"date +%s.%N > {began}.part && mv {began}.part {began}"
        job = {"name": "job", "runs_on": [f"{run}-small"], "steps": [step]}
        queued = time.time()
        self.post("", {"repository": "demo/app", "run_id": run, "jobs": [job]})
        until("the job", began.is_file)
        return float(began.read_text()) - queued

    def end(self) -> None:
        self.up.send_signal(signal.SIGINT)
        self.up.wait(WITHIN)


def measured(package: str, runs: int) -> str:
    with tempfile.TemporaryDirectory() as place:
        yard = Yard(Path(place) / "yard", package)
        try:
            waited = []
            for run in range(1000, 1000 + runs):
                until("warm machines", lambda: yard.idle() >= 2)
                time.sleep(PAUSE)
                waited.append(yard.waits(run))
        finally:
            yard.end()
    return f"{statistics.median(waited):.2f} s ({min(waited):.2f} to {max(waited):.2f})"


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    for package, told in (("small,unpaced", "a runner that takes no time"), ("small", "a runner as slow as GitHub's")):
        print(f"queued -> first step, {runs} runs, {told}: {measured(package, runs)}", flush=True)


if __name__ == "__main__":
    main()
