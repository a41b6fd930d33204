"""How long a claim takes, and what it costs the machine: `run --claims N` plants nothing and plays runs that follow one
another on one machine. The first is a new machine's, which had ten seconds before; the others begin once the machine has
prepared what it prepares, or at once after the release of the one before. What the runner needs by itself, without agent
and jail, is measured first.
"""

import contextlib
import datetime
import os
import re
import shutil
import signal
import statistics
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import machine

# How often the runner is measured by itself.
ALONE = 5
# How long a new machine has before its first claim, in seconds.
TIME = 10
TICKS = os.sysconf("SC_CLK_TCK")
# How long what hangs is waited for, and a machine that prepares nothing.
DEADLINE, UNPREPARED = 600, 20
PLACE = machine.LAB / "alone"
YARD = Path("/srv/yard/data")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REPOSITORY = "demo/app"


class Claims:
    """The claims of a laboratory whose yard is up."""

    def __init__(self, lab, spec: dict, wait: Callable) -> None:
        self.lab, self.spec, self.wait = lab, spec, wait

    def play(self) -> dict:
        alone = self.alone()
        self.wait_for_machine()
        time.sleep(TIME)
        waited, marks = [], []
        for _ in range(self.spec["claims"] + 1):
            marks.append(self.spent())
            begun = time.monotonic()
            run = self.lab.provision()
            waited.append(time.monotonic() - begun)
            self.lab.release(run)
            if not self.spec.get("at_once"):
                self.wait_until_prepared()
        self.wait_until_prepared()
        marks.append(self.spent())
        said = self.said()
        claims = self.read(said)
        for claim, wait, before, after in zip(claims, waited, marks, marks[1:]):
            claim["provision --wait"] = wait
            claim |= {name: after[name] - before[name] for name in after}
            if "claim to listening" in claim:
                own = statistics.median(one["config.sh"] + one["run.sh to listening"] for one in alone)
                claim["above the runner's own"] = claim["claim to listening"] - own
        return {"claims": claims[1:], "first": claims[:1], "alone": alone, "said": said[-4000:]}

    # The runner by itself.

    def alone(self) -> list[dict]:
        home = YARD / "github"
        port = (home / "api.port").read_text().strip()
        archive, _ = urllib.request.urlretrieve(f"http://127.0.0.1:{port}/_runner/package.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(PLACE)
        os.unlink(archive)
        try:
            # The first is cold.
            return [self.once(port, number) for number in range(ALONE + 1)][1:]
        finally:
            shutil.rmtree(PLACE)

    def once(self, port: str, number: int) -> dict:
        def token(kind: str) -> str:
            return self.lab.github(f"/repos/{REPOSITORY}/actions/runners/{kind}-token", {})["token"]
        words = ["--unattended", "--url", f"http://127.0.0.1:{port}/{REPOSITORY}", "--token", token("registration"),
                 "--name", f"alone-{number}", "--labels", "alone", "--no-default-labels"]
        config, spent = self.script("config.sh", words)
        listen, more = self.script("run.sh", [], until="Listening for Jobs")
        self.script("config.sh", ["remove", "--token", token("remove")])
        return {"config.sh": config, "run.sh to listening": listen, "its processor time": spent + more}

    def script(self, name: str, words: list[str], until: str | None = None) -> tuple[float, float]:
        """How long it took, to its end or to these words, and how much of a processor."""
        log = PLACE / "log"
        environment = {"PATH": PATH, "HOME": str(PLACE), "LANG": "C.UTF-8", "RUNNER_ALLOW_RUNASROOT": "1",
                       "RUNNER_MANUALLY_TRAP_SIG": "1"}
        begun = time.monotonic()
        with log.open("wb") as out:
            child = subprocess.Popen([PLACE / name, *words], cwd=PLACE, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=out, start_new_session=True, preexec_fn=heeds)
        while until and until not in log.read_text(errors="replace"):
            if child.poll() is not None or time.monotonic() > begun + DEADLINE:
                raise ValueError(f"{name}: {log.read_text(errors='replace')[-400:]}")
            time.sleep(0.005)
        took = time.monotonic() - begun
        if until:
            child.send_signal(signal.SIGINT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if until is None:
            took = time.monotonic() - begun
            if child.returncode != 0:
                raise ValueError(f"{name} ended with {child.returncode}: {log.read_text(errors='replace')[-400:]}")
        return took, used.ru_utime + used.ru_stime

    # The machine.

    def wait_for_machine(self) -> None:
        def is_there() -> bool:
            self.lab.ended()
            return any(item["state"].lower() == "idle" for item in self.lab.machines())
        self.wait("a machine", is_there)

    def wait_until_prepared(self) -> None:
        """As a pooled machine has it: its next claim is prepared. An agent that prepares nothing is waited for, too."""
        self.lab.settled()

        def prepared() -> bool:
            if self.spec.get("ahead"):
                return any((item.get("ahead") or {}).get("runnerId") for item in self.lab.machines())
            return "the next claim is prepared" in self.said().rpartition("outcome=Wiped")[2]
        end = time.monotonic() + UNPREPARED
        while not prepared() and time.monotonic() < end:
            time.sleep(0.1)

    def spent(self) -> dict:
        """What the agent has taken so far. Its children count from their end, the runner's processes among them."""
        process = self.agent()
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        own, children = (sum(int(field) for field in fields[at : at + 2]) / TICKS for at in (11, 13))
        counted = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
        return {"agent's processor time": own, "with its children's": own + children, "MB written": int(counted["wchar"]) / 1e6}

    def agent(self) -> Path:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[:2] == [machine.AGENT.encode(), b"--config"] and os.path.realpath(process / "exe") == machine.AGENT:
                    found.append(process)
        if not found:
            raise ValueError("there is no agent")
        return min(found, key=lambda process: int(process.name))

    def said(self) -> str:
        logs = sorted(YARD.glob("**/agent.log"))
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(log.read_text(errors="replace") for log in logs))

    def read(self, said: str) -> list[dict]:
        """The parts of each claim, as the agent's log has them, from a claim that it sees to a runner that listens."""
        begun, last, run, claims = None, None, None, []
        for line in said.splitlines():
            if not (found := re.match(r"(\d{4}-\S+Z)\s+\w+ \S+: (.*)", line)):
                continue
            at, words = datetime.datetime.fromisoformat(found[1]).timestamp(), found[2]
            if "the record changed" in words and (of := re.search(r"run=(\S*\d\S*)", words)):
                if of[1] != run:
                    run = of[1]
                    claims.append({})
                    # A runner that listened before may be running when the agent first reads its claim.
                    begun = at if "running" not in words else None
            elif words.startswith("begins"):
                last = at
            elif words.startswith("done") and begun and last and claims:
                claims[-1][re.search(r"task=(?:Some\()?(\w+)", words)[1]] = at - last
            elif "saying signal=UD_REG_OK" in words and begun:
                claims[-1]["claim to listening"] = at - begun
                begun = None
        return claims


def heeds() -> None:
    """The laboratory ignores the signal by which runners are stopped; what it starts would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def told(result: dict) -> str:
    """What was measured, as tables: medians first."""
    named = [("the runner by itself", "alone"), ("the first claim of a new machine, which had 10 s before", "first"),
             ("each claim after it", "claims")]
    return "\n".join(f"{name}:\n{times(result[key])}" for name, key in named if result.get(key))


def times(claims: list[dict]) -> str:
    """Each part of all claims, in seconds unless it says otherwise."""
    lines = [f"  {'':26} {'p50':>7} {'min':>7} {'max':>7}"]
    for name in dict.fromkeys(name for claim in claims for name in claim):
        values = sorted(claim[name] for claim in claims if name in claim)
        lines.append(f"  {name:26} {statistics.median(values):7.3f} {values[0]:7.3f} {values[-1]:7.3f}  of {len(values)}")
    return "\n".join(lines)
