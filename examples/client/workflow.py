#!/usr/bin/env python3
"""A workflow's part (contract 3): ask for machines, wait until they are ready, work on them, give them back.

    workflow.py --repository OWNER/REPO --run-id ID --class CLASS [--count N] [-- COMMAND...]

COMMAND runs once the machines are ready, with the jobs' label in RUNYARD_LABEL and the machines' ids, separated by spaces,
in RUNYARD_INSTANCES. The machines are given back when it ends, however it ends. Exit codes are those of contract 6."""

import argparse
import os
import secrets
import signal
import string
import subprocess
import sys
import time
import uuid

sys.dont_write_bytecode = True

from table import ABSENT, Newer, Refused, Table, TableError, now  # noqa: E402

SUFFIX = string.ascii_lowercase + string.digits
WISHES = ("resourceClass", "count", "minCount", "usageClass", "onDemandFallback", "allowedInstanceTypes", "maxRuntimeMinutes",
          "timeoutSeconds", "priority", "trial")
"""In what two intents of one key may differ (3.1, rule 3)."""
DEFAULTS = {"timeoutSeconds": 600, "onDemandFallback": False, "trial": False}
"""Of attributes that an intent may leave out; `minCount` is `count`."""
FINAL = ("Released", "Failed")
CHANGED = {"generation": 1, "version": 1}
"""What a change of an intent adds to: both by exactly one (1.2 and 3.1)."""


class NotServed(Exception):
    """The request gets no machines, or is not what was asked for."""

    exits = 3


class Different(NotServed):
    """A request of this key exists, and it is another one."""

    exits = 1


class TooLate(NotServed):
    """The wait is over."""

    exits = 4


def key_of(repository: str, run_id: str, name: str = "default", attempt: int = 1) -> tuple[str, str]:
    """The key of a request: owner and repository in lower case (1.1)."""
    return f"request#{repository.lower()}#{run_id}", f"request#{name}#{attempt}"


def ask(table: Table, repository: str, run_id: str, resource_class: str, count: int = 1, name: str = "default",
        attempt: int = 1, secret_label: bool = False, **wishes) -> dict:
    """Writes a request's intent (3.1, rule 1), and gives the record that there is then; `wishes` are attributes of 3.1.

    Whoever asks for the same again gets the request that there is (rule 3)."""
    at, (pk, sk) = now(), key_of(repository, run_id, name, attempt)
    intent = {
        "kind": "request", "version": 1, "uid": uuid.uuid4().hex, "createdAt": at, "updatedAt": at,
        "runId": run_id, "attempt": attempt, "repository": repository, "name": name,
        "resourceClass": resource_class, "count": count, "desired": "provisioned", "generation": 1,
    } | wishes
    if secret_label:
        intent["labelSuffix"] = "".join(secrets.choice(SUFFIX) for _ in range(8))
    try:
        table.update(pk, sk, {"pk": ABSENT}, intent)
    except Refused:
        pass  # The record tells whose it is: an earlier one, or ours where only the answer was lost.
    found = table.get(pk, sk)
    if found is None:
        raise Different(f"{pk} {sk} was deleted: use another name or a new attempt")
    if found.get("uid") != intent["uid"]:
        same(found, intent)
    return found


def same(found: dict, intent: dict) -> None:
    """Checks that an existing record is the request that we would have written, and open."""
    what = f"{found['pk']} {found['sk']}"
    if found["desired"] != "provisioned" or found.get("phase") in FINAL:
        raise Different(f"{what} is {found.get('phase', 'released')}: use another name or a new attempt")
    if "labelSuffix" in intent and "labelSuffix" not in found:
        raise Different(f"{what} has a label that can be guessed: use another name")
    if "derivedFrom" in found and found["resourceClass"] == intent["resourceClass"]:
        return
    there, asked = ({"minCount": one["count"]} | DEFAULTS | one for one in (found, intent))
    differ = [one for one in WISHES if there.get(one) != asked.get(one)]
    if differ:
        shown = "; ".join(f"{one} is {there.get(one)!r}, asked for {asked.get(one)!r}" for one in differ)
        raise Different(f"{what} exists with another intent: {shown}")


def read(table: Table, ours: dict) -> dict:
    """The request as it is now; another record under its key is another request (1.2, rule 5)."""
    found = table.get(ours["pk"], ours["sk"])
    if found is None or found.get("uid") != ours.get("uid"):
        raise Different(f"{ours['pk']} {ours['sk']} was {'deleted' if found is None else 'replaced'} by somebody else")
    return found


def wait(table: Table, ours: dict, phase: str = "Ready", patience: float = 630, tell=lambda record: None) -> dict:
    """Reads the request until it is in this phase (3.3); `patience` is in seconds."""
    end = time.monotonic() + patience
    while True:
        record = read(table, ours)
        tell(record)
        if record.get("phase") == phase:
            return record
        if record.get("phase") in FINAL or (phase == "Ready" and record["desired"] == "released"):
            # The reason of a refusal is in condition `Ready`, and the message begins with it (3.4, rule 1).
            raise NotServed(f"{record.get('phase', 'released')}: {record.get('message', 'released before it was ready')}")
        if time.monotonic() > end:
            raise TooLate(f"{record.get('phase', 'no operator took it on')}: {record.get('message', '')}")
        time.sleep(0.5)


def label(record: dict) -> str:
    """What jobs write in `runs-on` to get the request's machines (2.5, rules 9 and 10)."""
    parts = [record["runId"], "" if record["name"] == "default" else record["name"], record.get("labelSuffix", "")]
    return "-".join(part for part in parts if part)


def shown(record: dict) -> str:
    """The label without its secret part, for logs."""
    return label(record | {"labelSuffix": "********"} if "labelSuffix" in record else record)


def raise_count(table: Table, ours: dict, count: int) -> dict:
    """Asks for more machines of a request that is served (3.1, rules 4 and 5), on the version that was read."""
    while True:
        record = read(table, ours)
        if record["count"] >= count:
            return record
        if record["desired"] != "provisioned" or record.get("phase") in FINAL:
            raise Different(f"{ours['pk']} {ours['sk']} is released or over: it gets no more machines")
        seen = {name: record[name] for name in ("uid", "version") if name in record}
        try:
            table.update(ours["pk"], ours["sk"], seen, {"count": count, "updatedAt": now()}, CHANGED)
        except Refused:
            continue  # Somebody wrote since, the operator most likely: what is to be written is judged anew.


def release(table: Table, ours: dict) -> dict:
    """Gives the machines back: on `desired`, never on the version, which the operator raises meanwhile (3.1, rule 2)."""
    expects = {"desired": "provisioned"} | ({"uid": ours["uid"]} if "uid" in ours else {})
    try:
        table.update(ours["pk"], ours["sk"], expects, {"desired": "released", "updatedAt": now()}, CHANGED)
    except Refused:
        pass  # It is released already, or the record is another: reading tells.
    return read(table, ours)


def borrow(table: Table, arguments: argparse.Namespace) -> int:
    """The whole cycle."""
    asked = ask(table, arguments.repository, arguments.run_id, arguments.resource_class, arguments.count, arguments.name,
                arguments.attempt, arguments.secret_label, timeoutSeconds=arguments.timeout)
    told = []

    def tell(record: dict) -> None:
        line = f"{record.get('phase', 'new'):10} {record.get('message', '')}".rstrip()
        if told[-1:] != [line]:
            told.append(line)
            print(line, flush=True)

    try:
        # The operator fails it at its deadline; who waits a little longer hears why.
        ready = wait(table, asked, "Ready", arguments.timeout + 30, tell)
        print(f"runs-on    {shown(ready)}\nmachines   {' '.join(ready['instances'])}", flush=True)
        given = {"RUNYARD_LABEL": label(ready), "RUNYARD_INSTANCES": " ".join(ready["instances"])}
        done = subprocess.run(arguments.command, env=os.environ | given).returncode if arguments.command else 0
    finally:
        release(table, asked)
    wait(table, asked, "Released", arguments.timeout, tell)
    return done


def main() -> int:
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--repository", required=True)
    asks.add_argument("--run-id", required=True)
    asks.add_argument("--class", required=True, dest="resource_class")
    asks.add_argument("--count", type=int, default=1)
    asks.add_argument("--name", default="default")
    asks.add_argument("--attempt", type=int, default=1)
    asks.add_argument("--timeout", type=int, default=600, help="seconds")
    asks.add_argument("--secret-label", action="store_true")
    asks.add_argument("command", nargs="*")
    # The end by a signal gives the machines back, as every other.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return borrow(Table(), asks.parse_args())
    except NotServed as why:
        print(f"error: {why}", file=sys.stderr)
        return why.exits
    except (Newer, TableError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
