#!/usr/bin/env python3
"""The workflow's part of the contract (section 3): request machines, wait until they are ready, use them, release them.

    workflow.py --repository OWNER/REPO --run-id ID --class CLASS [--count N] [-- COMMAND...]

COMMAND runs once the machines are ready. Its environment has the label for jobs in RUNYARD_LABEL, and the ids of the
machines, separated by spaces, in RUNYARD_INSTANCES. The machines are released when it ends, with success or without.
Numbers in comments are sections of docs/contract.md; the exit codes are those of section 6."""

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

from table import ABSENT, NewerSchema, ConditionFailed, Table, TableError, now  # noqa: E402

SUFFIX = string.ascii_lowercase + string.digits
WISHES = ("resourceClass", "count", "minCount", "usageClass", "onDemandFallback", "allowedInstanceTypes",
          "maxRuntimeMinutes", "timeoutSeconds", "priority", "trial")
"""The attributes by which two intents with one key are compared (3.1, rule 3)."""
DEFAULTS = {"timeoutSeconds": 600, "onDemandFallback": False, "trial": False}
"""Defaults of absent attributes; the default of `minCount` is `count`."""
FINAL = ("Released", "Failed")
CHANGED = {"generation": 1, "version": 1}
"""Each change of an intent adds one to both (1.2 and 3.1, rule 2)."""


class RequestFailed(Exception):
    """The request failed, or was released before it was ready."""

    exit_code = 3


class Conflict(RequestFailed):
    """The record under the key is another request."""

    exit_code = 1


class TimedOut(RequestFailed):
    """The request did not reach its phase in time."""

    exit_code = 4


def key_of(repository: str, run_id: str, name: str = "default", attempt: int = 1) -> tuple[str, str]:
    """Returns the key of a request, with owner and repository in lower case (1.1)."""
    return f"request#{repository.lower()}#{run_id}", f"request#{name}#{attempt}"


def provision(table: Table, repository: str, run_id: str, resource_class: str, count: int = 1, name: str = "default",
              attempt: int = 1, secret_label: bool = False, **wishes) -> dict:
    """Writes the intent of a request (3.1, rule 1) and returns its record; `wishes` are further attributes of 3.1.

    If the same intent was written before, the existing request is returned (rule 3)."""
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
    except ConditionFailed:
        pass  # Another request exists, or this one was created and the response was lost: the `uid` distinguishes them.
    existing = table.get(pk, sk)
    if existing is None:
        raise Conflict(f"{pk} {sk} was deleted: use another name or a new attempt")
    if existing.get("uid") != intent["uid"]:
        check_same(existing, intent)
    return existing


def check_same(existing: dict, intent: dict) -> None:
    """Checks that an existing request is open and has the same intent."""
    key = f"{existing['pk']} {existing['sk']}"
    if existing["desired"] != "provisioned" or existing.get("phase") in FINAL:
        raise Conflict(f"{key} is {existing.get('phase', 'released')}: use another name or a new attempt")
    if "labelSuffix" in intent and "labelSuffix" not in existing:
        raise Conflict(f"{key} has no secret label: use another name")
    if "derivedFrom" in existing and existing["resourceClass"] == intent["resourceClass"]:
        return
    stored, wanted = ({"minCount": one["count"]} | DEFAULTS | one for one in (existing, intent))
    differences = [name for name in WISHES if stored.get(name) != wanted.get(name)]
    if differences:
        shown = "; ".join(f"{name} is {stored.get(name)!r}, requested {wanted.get(name)!r}" for name in differences)
        raise Conflict(f"{key} exists with another intent: {shown}")


def read(table: Table, request: dict) -> dict:
    """Reads the request again. A record with another `uid` is another request (1.2, rule 5)."""
    record = table.get(request["pk"], request["sk"])
    if record is None or record.get("uid") != request.get("uid"):
        outcome = "deleted" if record is None else "replaced"
        raise Conflict(f"{request['pk']} {request['sk']} was {outcome} by another writer")
    return record


def wait(table: Table, request: dict, phase: str = "Ready", timeout: float = 630, report=lambda record: None) -> dict:
    """Polls the request until it reaches a phase (3.3); the timeout is in seconds."""
    end = time.monotonic() + timeout
    while True:
        record = read(table, request)
        report(record)
        if record.get("phase") == phase:
            return record
        if record.get("phase") in FINAL or (phase == "Ready" and record["desired"] == "released"):
            # The message begins with the reason (3.4, rule 1).
            message = record.get("message", "released before it was ready")
            raise RequestFailed(f"{record.get('phase', 'released')}: {message}")
        if time.monotonic() > end:
            raise TimedOut(f"{record.get('phase', 'no operator accepted it')}: {record.get('message', '')}")
        time.sleep(0.5)


def label(record: dict) -> str:
    """Returns the label for `runs-on` of the jobs (2.5, rules 9 and 10)."""
    parts = [record["runId"], "" if record["name"] == "default" else record["name"], record.get("labelSuffix", "")]
    return "-".join(part for part in parts if part)


def public_label(record: dict) -> str:
    """Returns the label for logs, without its secret part (2.5, rule 10)."""
    return label(record | {"labelSuffix": "********"} if "labelSuffix" in record else record)


def raise_count(table: Table, request: dict, count: int) -> dict:
    """Raises the number of machines (3.1, rule 5), conditional on the version that was read (rule 2)."""
    while True:
        record = read(table, request)
        if record["count"] >= count:
            return record
        if record["desired"] != "provisioned" or record.get("phase") in FINAL:
            raise Conflict(f"{request['pk']} {request['sk']} is released or over: its count cannot be raised")
        seen = {name: record[name] for name in ("uid", "version") if name in record}
        try:
            table.update(request["pk"], request["sk"], seen, {"count": count, "updatedAt": now()}, CHANGED)
        except ConditionFailed:
            continue  # Another writer, most likely the operator, was first: read and decide again.


def release(table: Table, request: dict) -> dict:
    """Releases the machines, conditional on `desired` and never on the version (3.1, rule 2)."""
    expects = {"desired": "provisioned"} | ({"uid": request["uid"]} if "uid" in request else {})
    try:
        table.update(request["pk"], request["sk"], expects, {"desired": "released", "updatedAt": now()}, CHANGED)
    except ConditionFailed:
        pass  # It was released before, or the record is another request.
    return read(table, request)


def borrow(table: Table, arguments: argparse.Namespace) -> int:
    """Runs the whole cycle and returns the exit code of the command."""
    request = provision(
        table, arguments.repository, arguments.run_id, arguments.resource_class, arguments.count, arguments.name,
        arguments.attempt, arguments.secret_label, timeoutSeconds=arguments.timeout,
    )
    lines = []

    def report(record: dict) -> None:
        line = f"{record.get('phase', 'new'):10} {record.get('message', '')}".rstrip()
        if lines[-1:] != [line]:
            lines.append(line)
            print(line, flush=True)

    try:
        # The operator fails the request at its deadline: wait a little longer for the reason.
        ready = wait(table, request, "Ready", arguments.timeout + 30, report)
        print(f"runs-on    {public_label(ready)}\nmachines   {' '.join(ready['instances'])}", flush=True)
        variables = {"RUNYARD_LABEL": label(ready), "RUNYARD_INSTANCES": " ".join(ready["instances"])}
        code = subprocess.run(arguments.command, env=os.environ | variables).returncode if arguments.command else 0
    finally:
        release(table, request)
    wait(table, request, "Released", arguments.timeout, report)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--class", required=True, dest="resource_class")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--name", default="default")
    parser.add_argument("--attempt", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=600, help="seconds")
    parser.add_argument("--secret-label", action="store_true")
    parser.add_argument("command", nargs="*")
    # A signal ends the wait, and the request is released (section 6).
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return borrow(Table(), parser.parse_args())
    except RequestFailed as why:
        print(f"error: {why}", file=sys.stderr)
        return why.exit_code
    except (NewerSchema, TableError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
