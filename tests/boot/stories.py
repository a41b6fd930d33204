"""What is to be true of machines that boot, told as stories that go on at the same time; process 1 of the laboratory's
namespaces, called by `run`. Prints a line for each check.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import lab
from lab import LAB, PATH, WORLD, Failed, Image, Machine, World, Yard, must, wait

# A line at a time, as it comes.
NOISE = re.compile(r"url_helper|DEBUG|ci-info|POST / HTTP|  OK  ")
# Prints the status of an answer of the metadata service, or what the failure is called.
CURL = "curl --silent --max-time 3 --output /dev/null --write-out '%{http_code} ' "
SERVICE = ("http://169.254.169.254", "http://[fd00:ec2::254]")


class Stories:
    def __init__(self, spec: dict) -> None:
        self.spec, self.world = spec, World()
        self.passed, self.failed = [], []
        self.yards: list[Yard] = []

    def base(self, suite: str = "bookworm") -> list[Path]:
        return [LAB / "image", Path(self.spec["roots"][suite])]

    def has(self, what: str, began: float) -> None:
        self.passed.append(what)
        print(f"tests/boot: ok: {what} ({time.monotonic() - began:.1f} s)", flush=True)

    @contextlib.contextmanager
    def check(self, what: str):
        began = time.monotonic()
        yield
        self.has(what, began)

    def play(self) -> int:
        began = time.monotonic()
        self.world.serve()
        stories = {}
        # First what takes longest.
        self.dusk = Yard(self.world, "dusk", {
            "deadline": (Image(self.base()), {}),
            "silent": (Image(self.base(), self.impatient), {}),
            "gone": (Image(self.base()), {}),
        }, {"TIMING__CREATED": "60s"})
        self.yards.append(self.dusk)
        kinds = {"plain": (Image(self.base()), {"launch": {"preRunnerScript": PRE_RUNNER}})}
        stories["dusk"] = self.without_an_operator
        stories["life"] = self.life
        self.yard = Yard(self.world, "yard", kinds, {})
        self.yards.append(self.yard)
        self.has("a world with two yards", began)
        only = self.spec.get("only")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            told = {name: pool.submit(self.story, name, story) for name, story in stories.items() if not only or name in only}
            for name in told:
                told[name].result()
        for yard in self.yards:
            for wrong in yard.machines.wrong:
                self.failed.append(f"EC2: {wrong}")
        for why in self.failed:
            print(f"tests/boot: FAILED: {why}", flush=True)
        if self.failed or self.spec["keep"]:
            self.keep()
        print(f"tests/boot: {time.monotonic() - began:.0f} s\n{len(self.passed)} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed else 0

    def story(self, name: str, story) -> None:
        try:
            story()
        except Failed as why:
            self.failed.append(f"{name}: {why}")
        except Exception as why:  # noqa: BLE001  whatever it is, the other stories go on
            self.failed.append(f"{name}: {type(why).__name__}: {why}")
            traceback.print_exc()

    # A machine's whole life, with an operator.

    def life(self) -> None:
        yard = self.yard
        with self.check("a machine boots and runs a job of its first run"):
            run, machine = yard.provision("plain")
            said = yard.job(run, "echo I am $(id -un)")
            must("I am runyard-job" in said, said)
        with self.check("a job reaches devices, and what the pre-runner script mounted is there for it and for the machine"):
            said = yard.job(run, *(f"exec 3<>/dev/{name} && echo opened {name}" for name in ("fuse", "net/tun", "kvm", "null")),
                            "cat /mnt/scratch/note")
            for word in ("opened fuse", "opened net/tun", "opened kvm", "opened null", "from the pre-runner script"):
                must(word in said, f"no {word!r}: {said}")
            must(machine.within("cat", "/mnt/scratch/note") == "from the pre-runner script\n", "the machine does not see it")
        with self.check("a job reaches the metadata service by neither address"):
            said = self.asks_for_metadata(run)
            must(said == ["000", "000"], f"it is told {said}")
            for address in SERVICE:
                must(self.token(machine, address), f"the agent has no answer from {address} either")
        with self.check("an agent that is killed comes back and its job goes on"):
            def kill() -> None:
                wait("the job's beginning", lambda: "begun" in self.world_log(run))
                before = machine.within("systemctl", "show", "-P", "MainPID", "runyard-agent").strip()
                machine.within("kill", "-KILL", before)
                wait("the agent", lambda: machine.within("systemctl", "show", "-P", "MainPID", "runyard-agent").strip() not in ("0", before))
                machine.within("touch", "/mnt/scratch/back")
            yard.job(run, "echo begun >/mnt/scratch/begun; for _ in $(seq 300); do test -e /mnt/scratch/back && exit 0; sleep 0.1; done; exit 1",
                     meanwhile=kill)
        with self.check("the machine is cleaned and serves a second run"):
            yard.release(run)
            again, second = yard.provision("plain")
            must(second.id == machine.id, f"{second.id} serves it, not {machine.id}")
            said = yard.job(again, "echo second")
            must("second" in said, said)
        with self.check("without our rules, which root takes away, the job reaches it: the check can fail"):
            machine.within("nft", "delete", "table", "inet", "runyard")
            # The job's own way out was among the rules.
            machine.within("nft", "add table ip lab; add chain ip lab p { type nat hook postrouting priority 100; }; "
                           "add rule ip lab p ip saddr 198.18.0.0/15 masquerade")
            must(self.asks_for_metadata(again)[0] == "401", "it is not told 401")
        with self.check("the operator ends it: EC2 switches it off, and its record says so"):
            yard.release(again)
            with contextlib.suppress(Failed):
                yard.say("expire", machine.id, "--now")
            wait("its end", lambda: not machine.is_on())
            must(machine.asked_to_end is not None, "it ended by itself")
            wait("its record", lambda: "terminated" in json.dumps(yard.record(machine)))

    def world_log(self, run: int) -> str:
        machines = [machine for machine in self.yard.machines.all.values() if machine.is_on()]
        return "".join(machine.within("sh", "-c", "test -e /mnt/scratch/begun && echo begun", check=False) for machine in machines)

    def asks_for_metadata(self, run: int) -> list[str]:
        """What a job is told at both addresses: a status of HTTP, or 000 where there is no answer."""
        asks = [f"{CURL} '{address}/latest/meta-data/job-was-here' || true" for address in SERVICE]
        return re.findall(r"^(\d{3}) ", self.yard.job(run, *(f"{ask}; echo" for ask in asks)), re.MULTILINE)

    def token(self, machine: Machine, address: str) -> str:
        return machine.within("curl", "--silent", "--fail", "--max-time", "3", "-X", "PUT", "-H",
                              "X-aws-ec2-metadata-token-ttl-seconds: 60", f"{address}/latest/api/token")

    # What ends machines when the operator is gone.

    @staticmethod
    def impatient(upper: Path) -> None:
        """The watchdog's timer looks more often, that the test need not wait a minute more."""
        lab.write(upper, {"etc/systemd/system/runyard-fuse.timer.d/lab.conf": "[Timer]\nOnBootSec=10s\nOnUnitActiveSec=2s\nAccuracySec=1s\n"})

    def without_an_operator(self) -> None:
        yard, kinds = self.dusk, ("deadline", "silent", "gone")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            held = list(pool.map(lambda kind: yard.provision(kind, "--max-runtime", "1m"), kinds))
        deadline, silent, gone = (machine for _, machine in held)
        yard.operator.terminate()
        yard.operator.wait(30)
        # The agent cannot come back: its unit fails before it is there.
        lab.write(Path(f"/proc/{silent.init()}/root"), {
            "run/systemd/system/runyard-agent.service.d/broken.conf": "[Service]\nExecStartPre=/bin/false\n"})
        silent.within("systemctl", "daemon-reload")
        silent.within("systemctl", "kill", "--signal=KILL", "--kill-who=main", "runyard-agent")
        gone.within("rm", "/usr/local/bin/runyard-agent")
        gone.within("systemctl", "kill", "--signal=KILL", "--kill-who=main", "runyard-agent")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda ending: ending(), (
                lambda: self.switches_itself_off(deadline, "a machine switches itself off at its deadline, with no operator"),
                lambda: self.switches_itself_off(silent, "the watchdog ends a machine whose agent is gone for good"),
                lambda: self.switches_itself_off(gone, "the watchdog ends a machine whose agent's program is removed"))))
        yard.operator = yard.operate()
        with self.check("the operator that comes back sees that they have ended"):
            for machine in (deadline, silent, gone):
                wait("its record", lambda machine=machine: "terminated" in json.dumps(yard.record(machine)))

    def switches_itself_off(self, machine: Machine, what: str, says: str = "") -> None:
        with self.check(what):
            wait(f"the end of {machine.kind}", lambda: not machine.is_on(), 240)
            must(machine.asked_to_end is None, "EC2 ended it")

    # What there is to read when something went wrong.

    def keep(self) -> None:
        place = Path(self.spec["keep"] or self.spec["scratch"])
        place.mkdir(parents=True, exist_ok=True)
        for log in LAB.glob("*.log"):
            (place / log.name).write_bytes(log.read_bytes())
        for yard in self.yards:
            for machine in yard.machines.all.values():
                told = [machine.console()]
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    told.append(machine.within("journalctl", "--no-pager", "-o", "short-monotonic", check=False))
                if not machine.is_on():
                    journal = machine.place / "root/var/log/journal"
                    done = subprocess.run(["journalctl", "--no-pager", "-o", "short-monotonic", f"--directory={journal}"], capture_output=True, text=True)
                    told.append(done.stdout)
                (place / f"{machine.kind}-{machine.name}.txt").write_text("\n".join(told))
        (place / "metadata.json").write_text(json.dumps(self.world.metadata.asked, indent=0))


PRE_RUNNER = """#!/bin/sh
set -eu
mkdir -p /mnt/scratch
mount -t tmpfs -o mode=1777 none /mnt/scratch
echo from the pre-runner script >/mnt/scratch/note
"""


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["PATH"] = PATH
    lab.build(spec["programs"])
    return Stories(spec).play()


if __name__ == "__main__":
    # Process 1 has to wait for everybody's children: what plays is one of them.
    if (player := os.fork()) == 0:
        code = 1
        try:
            code = main()
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    while True:
        pid, status = os.wait()
        if pid == player:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
