"""The client itself: that its laws catch what they forbid, and that its writers say what the contract says."""

import base64
import json
import time
import unittest
import uuid

from nacl.public import PublicKey, SealedBox

import records
from history import History, broken
from machines import Machines
from records import Refused, Table
from yard import dynamodb_endpoint

ARN = "arn:aws:ec2:us-east-1:000000000000:instance/i-0123456789abcdef0"
AT = "2026-01-01T00:00:00.000Z"


def instance(state: str = "idle pooled", **more) -> dict:
    held = state in ("claimed", "running")
    record = records.instance_key(ARN) | {
        "kind": "instance",
        "version": 7,
        "updatedAt": AT,
        "instanceId": "i-0123456789abcdef0",
        "instanceArn": ARN,
        "resourceClass": "small",
        "state": state.split()[0],
        "runId": "1" if held else "",
        "claimId": "c1" if held or state == "idle" else "",
        "uses": int(state == "running"),
        "threshold": "" if state == "terminated" else AT,
        "thresholdSetAt": AT,
    }
    if state == "idle pooled":
        record["pooledAt"] = AT
    if state == "terminated":
        record["reason"] = "threshold"
    return record | more


def request(phase: str, **more) -> dict:
    key = records.request_key("octo/app", "1")
    return key | {"kind": "request", "version": 7, "updatedAt": AT, "phase": phase, "instances": []} | more


class Said:
    """A history of one step."""

    def __init__(self, old, new):
        self.steps = [(old, new | {"version": 8} if new and old and "version" in old and new["version"] == 7 else new)]


class Laws(unittest.TestCase):
    def test_lawful_steps_are_let_through(self):
        for old, new in (
            (instance(), instance("claimed")),
            (instance("claimed"), instance("running")),
            (instance("running", uses=1), instance("idle", uses=1)),
            (instance("idle"), instance(claimId="c1")),
            (instance("claimed"), instance("terminated", claimId="c1")),
            (instance(), instance(threshold="2026-01-01T01:00:00Z")),
            (request("Pending"), request("Ready", instances=["a"])),
            (request("Releasing", instances=["a"]), request("Released")),
            (None, records.agent_key(ARN) | {"kind": "agent", "updatedAt": AT, "heartbeatSeq": 0}),
        ):
            self.assertEqual(broken(Said(old, new)), [], (old, new))

    def test_each_law_catches_its_breach(self):
        agent = records.agent_key(ARN) | {"kind": "agent", "updatedAt": AT, "heartbeatSeq": 4}
        for law, old, new in (
            ("version 9", instance(), instance("claimed", version=9)),
            ("x-team was dropped", instance(**{"x-team": 1}), instance("claimed")),
            ("idle pooled became running", instance(), instance("running")),
            ("terminated became claimed", instance("terminated"), instance("claimed")),
            ("running became idle pooled", instance("running", uses=1), instance(uses=1, claimId="c1")),
            ("claimed without a run", instance(), instance("claimed", runId="")),
            ("idle with a run", instance("idle"), instance("idle", runId="2")),
            ("changed hands", instance("running"), instance("running", claimId="c2")),
            ("the claim it had before", instance(claimId="c1"), instance("claimed")),
            ("lost its claim id", instance("running", uses=1), instance("idle", uses=1, claimId="")),
            ("uses 0 became 0", instance("claimed"), instance("running", uses=0)),
            ("kept its registration", instance("claimed"), instance("running", registration="x")),
            ("terminated with run", instance("claimed"), instance("terminated", claimId="c1", runId="1")),
            ("reason 'bored'", instance(), instance("terminated", reason="bored")),
            ("pooledAt while claimed", instance(), instance("claimed", pooledAt=AT)),
            ("no threshold", instance(), {k: v for k, v in instance("claimed").items() if k != "threshold"}),
            ("born idle", None, instance(version=1)),
            ("deleted while running", instance("running"), None),
            ("straight into the pool", instance("created", claimId="c1", runId="1"), instance(claimId="c1")),
            ("Released became Ready", request("Released"), request("Ready")),
            ("went back from Ready", request("Ready"), request("Pending")),
            ("holds a machine twice", request("Pending"), request("Ready", instances=["a", "a"])),
            ("while it holds", request("Releasing"), request("Released", instances=["a"])),
            ("heartbeatSeq 4 became 6", agent, agent | {"heartbeatSeq": 6}),
            ("nobody here can read was changed", request("Pending", schema=2), request("Ready", schema=2)),
        ):
            with self.subTest(law):
                self.assertIn(law, " ".join(broken(Said(old, new))))


class Writers(unittest.TestCase):
    def setUp(self) -> None:
        self.dynamodb = records.client("dynamodb", dynamodb_endpoint())
        self.table = Table(self.dynamodb, f"yard-{uuid.uuid4().hex[:12]}")
        made = self.dynamodb.create_table(
            TableName=self.table.name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        self.addCleanup(self.dynamodb.delete_table, TableName=self.table.name)
        self.history = History(
            records.client("dynamodbstreams", dynamodb_endpoint()), made["TableDescription"]["LatestStreamArn"]
        )

    def test_an_intent_is_written_once_released_once_and_amended_by_version(self):
        key = self.table.provision("octo/app", "1", "small", 2)
        with self.assertRaises(Refused):
            self.table.provision("octo/app", "1", "small", 3)
        self.table.amend(key, **{"x-team": {"a": 1}})
        self.table.release(key)
        with self.assertRaises(Refused):
            self.table.release(key)
        record = self.table.get(key)
        self.assertEqual(
            (record["version"], record["generation"], record["desired"], record["count"]), (3, 2, "released", 2)
        )
        self.history.stop()
        self.assertEqual(len(self.history.of(key)), 3)
        self.assertEqual(broken(self.history), [])

    def test_an_agent_boots_registers_from_its_box_and_cleans(self):
        self.table.put(records.agent_key(ARN) | {"kind": "agent", "updatedAt": AT, "heartbeatSeq": 0})
        self.table.put(instance("created", version=1))
        machines = Machines(self.table, sealed=True)
        self.wait(lambda: self.agent().get("signal") == "UD_OK")
        machine = machines.machines[ARN]
        key = records.instance_key(ARN)
        self.table.amend(key, state="idle", pooledAt=AT)
        self.table.update(
            key, "version = :two", {"two": 2}, add={"version": 1}, state="claimed", runId="9", claimId="c9"
        )
        beat = self.agent()["heartbeatSeq"]
        self.wait(lambda: self.agent()["heartbeatSeq"] > beat + 1)
        self.assertEqual(self.agent()["signal"], "UD_OK", "registered without a registration")
        public = PublicKey(base64.b64decode(self.agent()["publicKey"]))
        box = SealedBox(public).encrypt(json.dumps({"claimId": "c9", "token": "t"}).encode())
        self.table.amend(key, registration=base64.b64encode(box).decode())
        self.wait(lambda: (self.agent()["signal"], self.agent()["signalClaimId"]) == ("UD_REG_OK", "c9"))
        self.assertEqual((machine.opened["registration"]["token"], machine.claims), ("t", ["c9"]))
        box = SealedBox(public).encrypt(json.dumps({"claimId": "c9", "token": "r"}).encode())
        self.table.amend(key, state="idle", runId="", removal=base64.b64encode(box).decode())
        self.wait(lambda: self.agent()["signal"] == "UD_REMOVE_REG_OK")
        self.assertEqual(machine.opened["removal"]["token"], "r")
        machines.stop()
        self.history.stop()
        self.assertTrue(self.history.of(records.agent_key(ARN)))

    def agent(self) -> dict:
        return self.table.get(records.agent_key(ARN))

    def wait(self, probe) -> None:
        deadline = time.monotonic() + 600
        while not probe():
            self.assertLess(time.monotonic(), deadline, self.agent())
            time.sleep(0.05)
