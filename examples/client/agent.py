#!/usr/bin/env python3
"""A machine's part (contract 2): heartbeats, signals, and the end. Local mode starts it in place of its own agent:

    RUNYARD_AGENT=examples/client/agent.py RUNYARD_GITHUB__KIND=none runyard up

It plays: `Work` stands for what an agent does on its machine, and only prints lines. Without GitHub no credential is
sealed (contract 8, rule 8), so it has no key; runner.py has one, and runs real runners."""

import argparse
import re
import sys
import time
import tomllib
from datetime import datetime
from pathlib import Path

sys.dont_write_bytecode = True

from table import PRESENT, Newer, Refused, Table, TableError, now  # noqa: E402

VERSION = "client-1"
LIVE = ("created", "idle", "claimed", "running")
ABSENT = ("signalRunId", "signalDetail", "runnerId", "runnerName")
"""What the agent record has only while there is a value."""
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class Failed(Exception):
    """A step of the work could not be done; its words are the signal's `signalDetail`."""


class Work:
    """What is to be done on the machine. Each step may raise `Failed`."""

    def boot(self) -> None:
        print("boots", flush=True)

    def may_register(self, instance: dict) -> bool:
        """Whether there is all that the claim's registration needs."""
        return True

    def shows(self) -> dict:
        """Further attributes of the agent record."""
        return {}

    def register(self, instance: dict) -> None:
        """Has a runner of the claim listen."""
        print(f"registers for {instance['claimId']} of run {instance['runId']}", flush=True)

    def stop(self, claim: str) -> None:
        """Ends the claim's runner and its processes."""
        print(f"stops {claim}", flush=True)

    def clean(self, claim: str) -> None:
        """Removes what the claim left."""
        print(f"cleans after {claim}", flush=True)


class Agent:
    """One machine. `clock` is in seconds since its boot. Here the agent lives as long as its machine; one that can be
    restarted keeps `said`, `serving` and `ends` on its disk (2.2, rule 9, and 2.4, rule 2)."""

    def __init__(self, table: Table, arn: str, created: float, grace: float, work: Work, clock=None):
        self.table, self.arn, self.created, self.grace, self.work = table, arn, created, grace, work
        self.clock = clock or (lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        # Until it has seen a deadline: the boot deadline (2.2, rule 8).
        self.deadline, self.ends = None, self.clock() + created
        self.said: dict = {}
        """The signal, which each heartbeat writes: it is a level (2.4, rule 2)."""
        self.serving = self.stopped = ""
        """The claim that was begun here and is not cleaned away, and the last one that was stopped."""

    def run(self, heartbeat: float, poll: float) -> None:
        """Lives until the record or the deadline ends it; lengths in seconds."""
        written, at = None, 0.0
        # Before it ends itself it reads once more (2.2, rule 9).
        while self.look() or self.look():
            if (self.said != written or self.clock() - at >= heartbeat) and self.beat():
                written, at = self.said, self.clock()
            time.sleep(poll)
        print("powers off", flush=True)

    def look(self) -> bool:
        """Reads the instance and does what it asks for. False: the machine is to end."""
        instance = None
        try:
            instance = self.table.get(f"instance#{self.arn}", "instance")
            if instance and instance["state"] != "terminated":
                self.count(instance)
        except (Newer, TableError, KeyError, TypeError, ValueError) as why:
            # One that cannot be read is no command either (1.3).
            print(f"reads no orders: {why!r}", flush=True)
            instance = None
        if instance and instance["state"] == "terminated":
            return False
        if instance:
            self.obey(instance)
        # Without a record it goes on as before (2.2, rule 8).
        return self.clock() < self.ends

    def count(self, instance: dict) -> None:
        """Counts a deadline by its length, from its first sight on this machine's own clock (2.2, rule 9)."""
        run, claim, deadline = instance["runId"], instance["claimId"], (instance["threshold"], instance["thresholdSetAt"])
        until, since = map(datetime.fromisoformat, deadline)
        if instance["state"] not in LIVE or not isinstance(run, str) or not isinstance(claim, str) or (run and not claim):
            raise ValueError(f"state {instance['state']!r}, runId {run!r}, claimId {claim!r}")
        if deadline != self.deadline:
            self.deadline, self.ends = deadline, self.clock() + (until - since).total_seconds() + self.grace

    def obey(self, instance: dict) -> None:
        """Does the work that leads to a signal that is true of this record (2.4)."""
        run, claim, work = instance["runId"], instance["claimId"], self.work
        if not self.said:
            self.attempt("UD", "", "", work.boot)
        if self.said["signal"] == "UD_FAILED":
            return
        if run and not self.answered("UD_REG", claim):
            if work.may_register(instance):
                # Of a claim that another one followed, the end comes first (2.4, rule 5).
                self.attempt("UD_REG", claim, run, lambda: self.end(self.serving), lambda: self.begin(instance))
        elif claim and not run and not self.answered("UD_REMOVE_REG", claim):
            if "hold" in instance:
                # A person looks at it: nothing is removed and nothing is signalled (2.10, rule 6).
                self.halt(claim)
            else:
                self.attempt("UD_REMOVE_REG", claim, "", lambda: self.end(claim))

    def answered(self, signal: str, claim: str) -> bool:
        """Whether the signal tells how that went for this claim. The claim id alone decides (2.4, rule 3)."""
        return self.said["signalClaimId"] == claim and self.said["signal"] in (f"{signal}_OK", f"{signal}_FAILED")

    def attempt(self, signal: str, claim: str, run: str, *steps) -> None:
        """Does the steps, and says how that went; attributes without a value are absent (2.1, rule 1)."""
        outcome, detail = "OK", ""
        try:
            for step in steps:
                step()
        except Failed as why:
            outcome, detail = "FAILED", str(why)
        more = {"signalRunId": run, "signalDetail": detail}
        self.said = {"signal": f"{signal}_{outcome}", "signalClaimId": claim, "signalAt": now()}
        self.said |= {name: value for name, value in more.items() if value}

    def begin(self, instance: dict) -> None:
        self.serving = instance["claimId"]
        self.work.register(instance)

    def halt(self, claim: str) -> None:
        if claim != self.stopped:
            self.work.stop(claim)
            self.stopped = claim

    def end(self, claim: str) -> None:
        if claim:
            self.halt(claim)
            self.work.clean(claim)
            self.serving = ""

    def beat(self) -> bool:
        """Writes the agent record, which must exist: the operator makes it and removes it (2.2, rules 1 and 2)."""
        written = {"heartbeatAt": now(), "updatedAt": now(), "agentVersion": VERSION} | self.said | self.work.shows()
        absent = tuple(name for name in ABSENT if name not in written)
        try:
            self.table.update(f"agent#{self.arn}", "agent", {"pk": PRESENT}, written, {"heartbeatSeq": 1}, absent)
        except (Refused, TableError) as why:
            print(f"could not write its record: {why}", flush=True)
            return False
        return True


def seconds(text: str) -> float:
    """A duration as settings have it (contract 8, rule 1): a number and a unit."""
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h)", text).groups()
    return float(number) * SECONDS[unit]


def main(work_of) -> None:
    """Runs a machine by its file, with the work that `work_of` makes of the file's settings."""
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--config", required=True, type=Path, help="the machine's file (contract 6, rule 13)")
    config = tomllib.loads(asks.parse_args().config.read_text())
    timing = {name: seconds(length) for name, length in config["timing"].items()}
    table = Table(name=config["table"])
    agent = Agent(table, config["instance_arn"], timing["created"], timing["grace"], work_of(config))
    agent.run(timing["heartbeat"], timing["poll"])


if __name__ == "__main__":
    main(lambda config: Work())
