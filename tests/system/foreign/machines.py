"""Agents from the contract alone: one thread plays all machines of a table, each as well or as badly as it is told."""

import base64
import json
import threading
from dataclasses import dataclass, field

from nacl.public import PrivateKey, SealedBox

import records
from records import Refused, Table, agent_key, log_key

BEAT = 0.25
"""Seconds between two looks at a machine's record, and between two heartbeats."""


@dataclass
class Machine:
    """One machine. The switches are the test's: set them at any time."""

    arn: str
    boots: str = "ok"
    """`ok`, `failed` or `silent`."""
    registers: str = "ok"
    """`ok`, `failed`, or `silent`: works on it and says nothing."""
    cleans: str = "ok"
    """`ok`, `failed` or `silent`."""
    beats: bool = True
    says: dict | None = None
    """When set, this is signalled instead of the truth."""
    found: dict | None = None
    """What its clean-ups found (contract 2.14); without it, it reports nothing."""
    extra: dict = field(default_factory=dict)
    """More attributes for its agent record."""
    key: PrivateKey = field(default_factory=PrivateKey.generate)
    opened: dict[str, dict] = field(default_factory=dict)
    """The last opened box by kind, `registration` or `removal`."""
    answered: str = ""
    """When the logs were asked for that it wrote last."""
    github: object = None
    """Where it registers a runner ahead of a claim (contract 2.9); without it, it does not know how."""
    resting: dict | None = None
    """That runner, as its agent record shows it."""
    serving: str = ""
    claims: list[str] = field(default_factory=list)
    """Every claim it registered for, in order."""

    def decrypt(self, sealed: str) -> dict:
        return json.loads(SealedBox(self.key).decrypt(base64.b64decode(sealed)))

    def open(self, kind: str, instance: dict) -> dict | None:
        """Opens a sealed box of the record for its present claim, if there is one."""
        if kind not in instance:
            return None
        box = self.decrypt(instance[kind])
        self.opened[kind] = box
        return box if box.get("claimId") == instance["claimId"] else None

    def rest(self, instance: dict) -> None:
        """Registers the runner that the record wants ahead of a claim, or ends the one that it wants no more."""
        wanted, free = instance.get("ahead"), not instance["runId"]
        if self.resting and (not wanted or wanted["id"] != self.resting["id"] or (free and "pooledAt" not in instance)):
            self.resting = None
        if self.resting or not self.github or not free or "pooledAt" not in instance or not wanted:
            return
        box = "registration" in instance and self.decrypt(instance["registration"])
        if box and box.get("aheadId") == wanted["id"]:
            self.opened["ahead"] = box
            number = self.github.register(box["runnerName"], box["labels"])
            self.resting = {"id": wanted["id"], "runnerId": number, "listening": True}

    def signal(self, instance: dict, sealed: bool) -> dict | None:
        """What an honest agent would say of this record, as far as the switches let it."""
        claim = instance["claimId"]
        if claim and "hold" in instance and not instance["runId"]:
            return None
        if instance["runId"]:
            if self.boots != "ok" or self.registers == "silent":
                return self.boot_signal() if not self.claims and not instance.get("uses") else None
            if self.resting:
                # Its runner has the label of the run once the record says so, and never a box.
                if instance["state"] != "running":
                    return None
                self.extra["runnerId"] = self.resting["runnerId"]
            elif sealed and self.serving != claim and self.open("registration", instance) is None:
                return None
            if self.registers == "ok" and self.serving != claim:
                self.serving = claim
                self.claims.append(claim)
                if not self.resting:
                    self.extra.pop("runnerId", None)
            return said("UD_REG_OK" if self.registers == "ok" else "UD_REG_FAILED", claim, instance["runId"])
        if claim:
            waits = sealed and self.serving == claim and "runnerId" not in self.extra
            if self.cleans == "silent" or (waits and self.open("removal", instance) is None):
                return None
            self.serving = ""
            if self.found is not None:
                self.extra["proof"] = {"claimId": claim, "isolation": ["none"], "cleaning": self.found}
            return said("UD_REMOVE_REG_OK" if self.cleans == "ok" else "UD_REMOVE_REG_FAILED", claim, "")
        return self.boot_signal()

    def boot_signal(self) -> dict | None:
        if self.boots == "silent":
            return None
        return said("UD_OK" if self.boots == "ok" else "UD_FAILED", "", "")


def said(signal: str, claim: str, run: str) -> dict:
    return {"signal": signal, "signalClaimId": claim, "signalRunId": run}


class Machines:
    """All machines of a table; `prepare` decides what a new one is like before it first speaks."""

    def __init__(self, table: Table, sealed: bool = False):
        self.table, self.sealed = table, sealed
        self.machines: dict[str, Machine] = {}
        self.prepare = lambda machine, instance: None
        self.stopping = threading.Event()
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def of(self, instance: dict) -> Machine:
        return self.machines[instance["instanceArn"]]

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(timeout=30)
        if self.error:
            raise self.error

    def work(self) -> None:
        try:
            while not self.stopping.wait(BEAT):
                for instance in self.table.all("instance"):
                    if instance.get("schema", 1) == 1 and instance.get("state") != "terminated":
                        self.step(instance)
        except Exception as error:  # noqa: BLE001 - shown by the test that stops us
            self.error = error

    def step(self, instance: dict) -> None:
        arn = instance["instanceArn"]
        if arn not in self.machines:
            machine = Machine(arn)
            self.prepare(machine, instance)
            self.machines[arn] = machine
        machine = self.machines[arn]
        asked = instance.get("logsRequestedAt", "")
        if machine.beats and asked != machine.answered:
            machine.answered = asked
            self.table.update(
                log_key(arn),
                "attribute_exists(pk) OR attribute_not_exists(pk)",
                kind="log",
                because="asked",
                at=records.now(),
                requestedAt=asked,
                agentVersion="foreign",
                parts=[{"name": "boot", "text": f"the first boot of {arn}"}],
                updatedAt=records.now(),
            )
        machine.rest(instance)
        signal = machine.says or machine.signal(instance, self.sealed)
        # With what the signal adds to them: the operator reads a report in the write that signals.
        fields = dict(machine.extra)
        if signal:
            fields |= signal | {"signalAt": records.now()}
        if machine.resting:
            fields["ahead"] = machine.resting
        if self.sealed:
            fields["publicKey"] = base64.b64encode(bytes(machine.key.public_key)).decode()
        if machine.beats:
            try:
                self.table.update(
                    agent_key(arn),
                    "attribute_exists(pk)",
                    add={"heartbeatSeq": 1},
                    remove=tuple(name for name in ("ahead", "runnerId") if name not in fields),
                    heartbeatAt=records.now(),
                    updatedAt=records.now(),
                    agentVersion="foreign",
                    **fields,
                )
            except Refused:
                pass  # the record is gone: the operator saw the machine gone
