"""Every version of every record, from the table's stream, and the laws each step must keep (contract 1 to 3)."""

import threading

import records

LIVE = {"created", "idle", "claimed", "running"}
FINAL = {"Released", "Failed"}
PHASES = {"Pending": 1, "Fulfilling": 1, "Ready": 2, "Releasing": 3, "Released": 4, "Failed": 4}
REASONS = {
    "threshold",
    "boot-failed",
    "registration-failed",
    "cleanup-failed",
    "unhealthy",
    "interrupted",
    "drifted",
    "surplus",
    "max-uses",
    "max-age",
    "expired",
    "orphan",
    "vanished",
}
STEPS = {
    ("created", "running"),
    ("claimed", "running"),
    ("created", "idle pooled"),
    ("created", "idle"),
    ("claimed", "idle"),
    ("running", "idle"),
    ("idle", "idle pooled"),
    ("idle pooled", "claimed"),
}
# A machine that a person holds goes nowhere but to its end.
STEPS |= {(state, "idle held") for state in ("created", "claimed", "running", "idle", "idle pooled")}
STEPS |= {(state, "terminated") for state in ("created", "claimed", "running", "idle", "idle pooled", "idle held")}


def state_of(record: dict) -> str:
    """The state by its name in the contract's table of transitions."""
    if record["state"] != "idle":
        return record["state"]
    return "idle pooled" if record.get("pooledAt") else "idle held" if record.get("hold") else "idle"


class History:
    """Follows one table's stream from its beginning on a thread of its own."""

    def __init__(self, streams, arn: str):
        self.streams, self.arn = streams, arn
        self.steps: list[tuple[dict | None, dict | None]] = []
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.error: Exception | None = None
        self.iterators: dict[str, str | None] = {}
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self) -> None:
        try:
            while not self.stopping.is_set():
                if not self.read():
                    self.stopping.wait(0.1)
            while self.read():
                pass
        except Exception as error:  # noqa: BLE001 - shown by the test that stops us
            self.error = error

    def read(self) -> int:
        """One round over all shards; how many changes it brought."""
        shards = self.streams.describe_stream(StreamArn=self.arn)["StreamDescription"]["Shards"]
        seen = 0
        for shard in (shard["ShardId"] for shard in shards):
            if shard not in self.iterators:
                self.iterators[shard] = self.streams.get_shard_iterator(
                    StreamArn=self.arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
                )["ShardIterator"]
            if self.iterators[shard] is None:
                continue
            reply = self.streams.get_records(ShardIterator=self.iterators[shard])
            self.iterators[shard] = reply.get("NextShardIterator")
            with self.lock:
                for change in (record["dynamodb"] for record in reply["Records"]):
                    old, new = change.get("OldImage"), change.get("NewImage")
                    self.steps.append((old and records.decoded(old), new and records.decoded(new)))
            seen += len(reply["Records"])
        return seen

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(timeout=30)
        if self.error:
            raise self.error

    def of(self, key: dict) -> list[tuple[dict | None, dict | None]]:
        """The steps of one record so far, in order."""
        with self.lock:
            return [
                (old, new)
                for old, new in self.steps
                if ((new or old)["pk"], (new or old)["sk"]) == (key["pk"], key["sk"])
            ]

    def path(self, key: dict) -> list[str]:
        """The states (or phases) one record went through, each named once in a row."""
        states: list[str] = []
        for _, new in self.of(key):
            name = new and (state_of(new) if new["kind"] == "instance" else new.get("phase", "new"))
            if name and states[-1:] != [name]:
                states.append(name)
        return states


def broken(history: History) -> list[str]:
    """Every law that some step broke, as sentences; empty when all held."""
    found = []
    for old, new in history.steps:
        record = new or old
        kind, name = record.get("kind"), f"{record['pk']} {record['sk']}"
        if kind is None:
            found.append(f"{name}: no kind")
            continue
        if old is not None and unreadable(old):
            # Its agent goes on writing, and at its machine's burial an agent's record goes whatever it holds.
            if record["sk"] == "agent":
                continue
            found.append(f"{name}: a record nobody here can read was changed")
            continue
        if unreadable(record):
            continue
        laws = versions(old, new, kind)
        if kind == "instance":
            laws += instance(old, new)
        if kind == "request":
            laws += request(old, new)
        if kind == "agent":
            laws += agent(old, new)
        if kind == "event" and old is not None and new is not None:
            laws.append("an event was changed")
        found += [f"{name}: {law}" for law in laws]
    return found


def unreadable(record: dict) -> bool:
    """Newer than this page, or marked by a test as malformed: not the operator's to touch."""
    return record.get("schema", 1) != 1 or "x-unreadable" in record


def versions(old: dict | None, new: dict | None, kind: str) -> list[str]:
    if new is None:
        return []
    laws = [] if "updatedAt" in new else ["no updatedAt"]
    if kind in ("agent", "event", "log"):
        return laws
    expected = 1 if old is None else old["version"] + 1
    if new.get("version") != expected:
        laws.append(f"version {new.get('version')} after {old and old['version']}")
    lost = {name for name in old or {} if name.startswith("x-")} - set(new)
    return laws + [f"unknown attribute {attribute} was dropped" for attribute in sorted(lost)]


def instance(old: dict | None, new: dict | None) -> list[str]:
    if new is None:
        return [] if old["state"] == "terminated" else [f"deleted while {old['state']}"]
    always = ("runId", "claimId", "threshold", "instanceId", "instanceArn", "resourceClass")
    laws = [f"no {attribute}" for attribute in always if attribute not in new]
    if laws:
        return laws
    state = state_of(new)
    if state in ("claimed", "running") and not (new["runId"] and new["claimId"]):
        laws.append(f"{state} without a run")
    if state.startswith("idle") and new["runId"]:
        laws.append("idle with a run")
    if "pooledAt" in new and state != "idle pooled":
        laws.append(f"pooledAt while {state}")
    if state == "terminated" and (new["runId"] or new["threshold"] or new.get("reason") not in REASONS):
        laws.append(
            f"terminated with run {new['runId']!r}, threshold {new['threshold']!r}, reason {new.get('reason')!r}"
        )
    if new["state"] in LIVE:
        laws += [] if new["threshold"] else [f"{state} without a threshold"]
        laws += [] if "reason" not in new else [f"{state} with a reason"]
        records.time_of(new["threshold"] or records.now())
    if old is None:
        # What nobody may use is recorded as ended, so that it is ended for a reason.
        ended = state == "terminated" and new["reason"] in ("orphan", "surplus")
        return laws if state == "created" or ended else [*laws, f"born {state}"]
    return laws + instance_step(old, new)


def instance_step(old: dict, new: dict) -> list[str]:
    before, after = state_of(old), state_of(new)
    laws = []
    if before != after and (before, after) not in STEPS:
        laws.append(f"{before} became {after}")
    if "hold" in old and "hold" not in new:
        laws.append("lost a person's hold")
    if before == after and (old["runId"], old["claimId"]) != (new["runId"], new["claimId"]):
        laws.append(f"changed hands while {after}")
    if (before, after) == ("created", "idle pooled") and old["claimId"]:
        laws.append("a machine born for a request went straight into the pool")
    if after == "claimed" and before != after and old["claimId"] == new["claimId"]:
        laws.append("claimed under the claim it had before")
    if after.startswith("idle") and before != after and new["claimId"] != old["claimId"]:
        laws.append("lost its claim id on being given back")
    if new.get("uses", 0) - old.get("uses", 0) != int(after == "running" and before != "running"):
        laws.append(f"uses {old.get('uses', 0)} became {new.get('uses', 0)} from {before} to {after}")
    if after == "running" and "registration" in new and before != after:
        laws.append("kept its registration when it became running")
    return laws


def request(old: dict | None, new: dict | None) -> list[str]:
    if new is None:
        return [] if old.get("phase") in FINAL else [f"deleted while {old.get('phase')}"]
    laws = []
    held = new.get("instances", [])
    if len(held) != len(set(held)):
        laws.append(f"holds a machine twice: {held}")
    before, after = (old or {}).get("phase"), new.get("phase")
    if after is None:
        return laws if before is None else [*laws, f"lost its phase {before}"]
    if after not in PHASES:
        return [*laws, f"phase {after!r}"]
    if before in FINAL and before != after:
        laws.append(f"{before} became {after}")
    if before in PHASES and PHASES[after] < PHASES[before]:
        laws.append(f"went back from {before} to {after}")
    if after == "Released" and held:
        laws.append(f"Released while it holds {held}")
    return laws


def agent(old: dict | None, new: dict | None) -> list[str]:
    if old is None and new is not None and new.get("heartbeatSeq") != 0:
        return [f"born with heartbeatSeq {new.get('heartbeatSeq')}"]
    if old is not None and new is not None and new["heartbeatSeq"] != old["heartbeatSeq"] + 1:
        return [f"heartbeatSeq {old['heartbeatSeq']} became {new['heartbeatSeq']}"]
    return []
