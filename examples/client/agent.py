#!/usr/bin/env python3
"""The agent's part of the contract (section 2): heartbeats, signals, and the end of the machine. Local mode starts this
program in place of the shipped agent:

    RUNYARD_AGENT=examples/client/agent.py RUNYARD_GITHUB__KIND=none runyard up

`Work` stands for the tasks of an agent on its machine; here they only print a line. Without GitHub no credential is
sealed (8, rule 8), so this agent has no key. runner.py has one, and starts GitHub's runner."""

import argparse
import re
import sys
import time
import tomllib
from datetime import datetime
from pathlib import Path

sys.dont_write_bytecode = True

from table import PRESENT, NewerSchema, ConditionFailed, Table, TableError, now  # noqa: E402

VERSION = "client-1"
LIVE = ("created", "idle", "claimed", "running")
ABSENT = ("signalRunId", "signalDetail", "runnerId", "runnerName")
"""Attributes of the agent record that are removed when they have no value (2.2)."""
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class Failed(Exception):
    """A task failed; the text becomes `signalDetail`."""


class Work:
    """The tasks on the machine. Each may raise `Failed`.

    A task blocks the heartbeat here. An agent whose tasks take longer than `timing.stale` must run them in the
    background."""

    def boot(self) -> None:
        print("boots", flush=True)

    def can_register(self, instance: dict) -> bool:
        """Returns whether the record has everything that the registration needs."""
        return True

    def attributes(self) -> dict:
        """Returns further attributes of the agent record."""
        return {}

    def register(self, instance: dict) -> None:
        """Registers a runner for the claim, and waits until it listens."""
        print(f"registers for {instance['claimId']} of run {instance['runId']}", flush=True)

    def stop(self, claim: str) -> None:
        """Stops the runner and its processes."""
        print(f"stops {claim}", flush=True)

    def clean(self, claim: str) -> None:
        """Removes everything that the claim left behind."""
        print(f"cleans after {claim}", flush=True)


class Agent:
    """The agent of one machine. `clock` returns the seconds since boot.

    In local mode the agent's end is the machine's end. An agent that may be restarted must keep `signal`, `serving` and
    `ends` on disk (2.2, rule 9, and 2.4, rule 2)."""

    def __init__(self, table: Table, arn: str, created: float, grace: float, work: Work, clock=None):
        self.table, self.arn, self.created, self.grace, self.work = table, arn, created, grace, work
        self.clock = clock or (lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        # Until a deadline was read, the boot deadline counts (2.2, rule 8).
        self.deadline, self.ends = None, self.clock() + created
        self.signal: dict = {}
        """The signal is a level: each heartbeat writes it again (2.4, rule 2)."""
        self.serving = self.stopped = ""
        """The claim that was begun and is not cleaned up yet, and the last claim whose runner was stopped."""

    def run(self, heartbeat: float, poll: float) -> None:
        """Runs until the record or the deadline ends the machine; intervals are in seconds."""
        written, at = None, 0.0
        # The second call reads the record once more before the machine ends (2.2, rule 9).
        while self.reconcile() or self.reconcile():
            if (self.signal != written or self.clock() - at >= heartbeat) and self.heartbeat():
                written, at = self.signal, self.clock()
            time.sleep(poll)
        print("powers off", flush=True)

    def reconcile(self) -> bool:
        """Reads the instance record and acts on it. Returns false when the machine must end."""
        instance = None
        try:
            instance = self.table.get(f"instance#{self.arn}", "instance")
            if instance and instance["state"] != "terminated":
                self.see(instance)
        except (NewerSchema, TableError, KeyError, TypeError, ValueError) as why:
            # A record that cannot be read is no command either (2.2, rule 10).
            print(f"cannot read the instance record: {why!r}", flush=True)
            instance = None
        if instance and instance["state"] == "terminated":
            return False
        if instance:
            self.act_on(instance)
        # Without a record the work continues until the last known deadline (2.2, rule 8).
        return self.clock() < self.ends

    def see(self, instance: dict) -> None:
        """Counts a new deadline by its length on the clock of this machine, from now on (2.2, rule 9)."""
        state, run, claim = instance["state"], instance["runId"], instance["claimId"]
        if state not in LIVE or not isinstance(run, str) or not isinstance(claim, str) or (run and not claim):
            raise ValueError(f"state {state!r}, runId {run!r}, claimId {claim!r}")
        deadline = instance["threshold"], instance["thresholdSetAt"]
        until, since = map(datetime.fromisoformat, deadline)
        if deadline != self.deadline:
            self.deadline, self.ends = deadline, self.clock() + (until - since).total_seconds() + self.grace

    def act_on(self, instance: dict) -> None:
        """Runs the tasks that the record requires, and sets the signal to their outcome (2.4)."""
        run, claim, work = instance["runId"], instance["claimId"], self.work
        if not self.signal:
            self.attempt("UD", "", "", work.boot)
        if self.signal["signal"] == "UD_FAILED":
            return
        if run and not self.answered("UD_REG", claim):
            if work.can_register(instance):
                # If another claim was served until now, its end comes first (2.4, rule 5).
                self.attempt("UD_REG", claim, run, lambda: self.clean_up(self.serving), lambda: self.register(instance))
        elif claim and not run and not self.answered("UD_REMOVE_REG", claim):
            if "hold" in instance:
                # A person holds the machine: nothing is removed and nothing is signalled (2.10, rule 6).
                self.stop_runner(claim)
            else:
                self.attempt("UD_REMOVE_REG", claim, "", lambda: self.clean_up(claim))

    def answered(self, signal: str, claim: str) -> bool:
        """Returns whether the signal is the outcome for this claim. The claim id alone decides (2.4, rule 3)."""
        return self.signal["signalClaimId"] == claim and self.signal["signal"] in (f"{signal}_OK", f"{signal}_FAILED")

    def attempt(self, signal: str, claim: str, run: str, *tasks) -> None:
        """Runs tasks and sets the signal to their outcome. Attributes without a value are absent."""
        outcome, detail = "OK", ""
        try:
            for task in tasks:
                task()
        except Failed as why:
            outcome, detail = "FAILED", str(why)
        more = {"signalRunId": run, "signalDetail": detail}
        self.signal = {"signal": f"{signal}_{outcome}", "signalClaimId": claim, "signalAt": now()}
        self.signal |= {name: value for name, value in more.items() if value}

    def register(self, instance: dict) -> None:
        self.serving = instance["claimId"]
        self.work.register(instance)

    def stop_runner(self, claim: str) -> None:
        if claim != self.stopped:
            self.work.stop(claim)
            self.stopped = claim

    def clean_up(self, claim: str) -> None:
        if claim:
            self.stop_runner(claim)
            self.work.clean(claim)
            self.serving = ""

    def heartbeat(self) -> bool:
        """Updates the agent record if it exists: the operator creates and removes it (2.2, rules 1 and 2)."""
        written = {"heartbeatAt": now(), "updatedAt": now(), "agentVersion": VERSION}
        written |= self.signal | self.work.attributes()
        absent = tuple(name for name in ABSENT if name not in written)
        try:
            self.table.update(f"agent#{self.arn}", "agent", {"pk": PRESENT}, written, {"heartbeatSeq": 1}, absent)
        except (ConditionFailed, TableError) as why:
            print(f"cannot write the agent record: {why}", flush=True)
            return False
        return True


def seconds(text: str) -> float:
    """Parses a duration of the configuration, a number and a unit (8, rule 1)."""
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h)", text).groups()
    return float(number) * SECONDS[unit]


def main(make_work) -> None:
    """Runs the agent of the machine that the file describes (6, rule 13). `make_work` gets the file's contents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, help="the machine's configuration")
    config = tomllib.loads(parser.parse_args().config.read_text())
    timing = {name: seconds(length) for name, length in config["timing"].items()}
    table = Table(name=config["table"])
    agent = Agent(table, config["instance_arn"], timing["created"], timing["grace"], make_work(config))
    agent.run(timing["heartbeat"], timing["poll"])


if __name__ == "__main__":
    main(lambda config: Work())
