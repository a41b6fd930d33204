"""Others write here too: what is unknown is kept, what is newer is left alone, what cannot be read blocks nothing."""

import json

import records
from yard import Scenario


class Others(Scenario):
    def test_attributes_nobody_here_knows_outlive_every_transition(self):
        mark = {"x-team": {"owner": "build", "tags": ["a", {"deep": 1}]}, "x-note": "kept"}
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.table.amend(records.instance_key(warm["instanceArn"]), **mark)
        self.table.amend(records.pool_key("small"), **mark)
        key = self.ask("7001", **mark)
        self.phase(key, "Ready")
        self.table.release(key)
        self.phase(key, "Released")
        self.pooled(1)
        self.runyard("scale", "small", "--desired", "0")
        self.pool(desired=1, max=2)
        self.machines.of(warm).says = {"signal": "UD_FAILED", "signalClaimId": "", "signalRunId": ""}
        self.eventually("it is gone", lambda: "goneAt" in self.instance(warm))
        for record in (self.instance(warm), self.table.get(key), self.table.get(records.pool_key("small"))):
            self.assertEqual({name: record.get(name) for name in mark}, mark)

    def test_a_request_of_a_newer_schema_is_left_alone_and_counted(self):
        self.pool()
        newer = self.ask("7002", schema=2)
        before = self.table.get(newer)
        self.phase(self.ask("7003"), "Ready")
        self.settle()
        self.assertEqual(self.table.get(newer), before)
        self.assertGreaterEqual(self.operator.metric("runyard_unreadable_records"), 1)

    def test_a_pooled_machine_of_a_newer_schema_is_not_claimed(self):
        self.pool(desired=1, max=2)
        (warm,) = self.pooled(1)
        self.table.amend(records.instance_key(warm["instanceArn"]), schema=2)
        before = self.instance(warm)
        ready = self.phase(self.ask("7004"), "Ready")
        self.assertNotIn(warm["instanceId"], ready["instances"])
        self.settle()
        self.assertEqual(self.instance(warm), before)

    def test_a_machine_released_under_a_newer_class_schema_gets_the_default_idle_time(self):
        self.pool(desired=0, idleSeconds=2)
        key = self.ask("7008")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.table.amend(records.pool_key("small"), schema=2)
        self.settle()
        self.table.release(key)
        self.phase(key, "Released")
        (idle,) = self.pooled(1)
        given = records.time_of(idle["threshold"]) - records.time_of(idle["thresholdSetAt"])
        self.assertEqual((idle["instanceId"], given.total_seconds()), (held["instanceId"], 1800))

    def test_a_release_does_not_say_that_a_machine_nobody_can_read_was_given_back(self):
        self.pool()
        key = self.ask("7009", count=2, maxRuntimeMinutes=1)
        self.phase(key, "Ready")
        broken, _ = self.holders(key)
        spoilt = {"uses": "many", "threshold": records.now(), "x-unreadable": True}
        self.table.amend(records.instance_key(broken["instanceArn"]), **spoilt)
        self.settle()
        self.table.release(key)
        over = self.phase(key, "Released")
        self.assertIn("1 of 2 unaccounted for", over["message"])
        self.assertNotIn("given back", over["message"])
        told = [one for one in over["conditions"] if one["type"] == "Unaccounted"]
        self.assertEqual([one["status"] for one in told], [True])

    def test_whatever_a_machine_writes_into_its_agent_record_it_is_buried(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.table.amend(records.agent_key(warm["instanceArn"]), **{"kind": "mine", "x-unreadable": True})
        self.runyard("expire", warm["instanceId"], "--now")
        self.ended(warm, "expired")
        self.eventually("it is seen gone", lambda: "goneAt" in self.instance(warm))
        self.assertIsNone(self.table.get(records.agent_key(warm["instanceArn"])))

    def test_null_is_no_value(self):
        self.pool(desired=1, max=2)
        (warm,) = self.pooled(1)
        spoilt = {"runId": None, "claimId": None, "x-unreadable": True}
        self.table.amend(records.instance_key(warm["instanceArn"]), **spoilt)
        before = self.instance(warm)
        self.settle()
        self.assertEqual(self.instance(warm), before)
        self.assertGreaterEqual(self.operator.metric("runyard_unreadable_records"), 1)

    def test_records_that_cannot_be_read_are_counted_and_block_nothing(self):
        self.pool()
        bad = self.ask("7005", **{"count": "three", "x-unreadable": True})
        arn = "arn:aws:ec2:us-east-1:000000000000:instance/i-0badbadbadbadbad0"
        broken = records.instance_key(arn) | {
            "kind": "instance",
            "version": 1,
            "instanceId": "i-0badbadbadbadbad0",
            "state": "dreaming",
            "runId": "",
            "claimId": "",
            "threshold": "soon",
            "resourceClass": "small",
            "x-unreadable": True,
            "instanceArn": arn,
            "updatedAt": records.now(),
        }
        self.table.put(broken)
        before = self.table.get(bad)
        self.phase(self.ask("7006"), "Ready")
        self.settle()
        self.assertGreaterEqual(self.operator.metric("runyard_unreadable_records"), 2)
        self.assertEqual(self.table.get(bad), before)
        self.assertEqual(self.table.get(records.instance_key(arn)), broken)

    def test_an_instance_of_a_new_class_is_born_with_what_the_page_names(self):
        self.pool(cpu=4, mmem=8192)
        key = self.ask("7007")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        for name in ("instanceType", "usageClass", "availabilityZone", "launchId", "trustDomain"):
            self.assertTrue(held.get(name), name)
        for name in ("createdAt", "stateSince", "updatedAt", "threshold", "thresholdSetAt"):
            records.time_of(held[name])
        self.assertEqual((held["cpu"], held["mmem"], held["uses"]), (4, 8192, 1))
        self.assertRegex(held["instanceId"], "^i-[0-9a-f]{17}$")
        self.assertEqual(held["pk"], f"instance#{held['instanceArn']}")
        self.assertTrue(held["instanceArn"].endswith(f":instance/{held['instanceId']}"))


class Queue(Scenario):
    def queue(self, suffix: str = "") -> str:
        return self.sqs.get_queue_url(QueueName=f"{self.table_name}-small{suffix}")["QueueUrl"]

    def test_a_pooled_machine_is_announced_under_its_claim(self):
        self.pool(desired=0)
        key = self.ask("7101")
        self.phase(key, "Ready")
        self.table.release(key)
        self.phase(key, "Released")
        (idle,) = self.pooled(1)
        self.operator.end()

        def announced():
            reply = self.sqs.receive_message(QueueUrl=self.queue(), MaxNumberOfMessages=10, VisibilityTimeout=0)
            bodies = [json.loads(message["Body"]) for message in reply.get("Messages", [])]
            return [body for body in bodies if body["instanceId"] == idle["instanceId"]]

        body = self.eventually("it is announced", announced)[0]
        self.assertEqual(body["claimId"], idle["claimId"])
        for name in ("resourceClass", "instanceType", "cpu", "mmem", "usageClass"):
            self.assertEqual(body[name], idle[name])

    def test_a_body_nobody_can_read_goes_to_the_dead_letters(self):
        self.pool(desired=1, max=2)
        self.pooled(1)
        # As many messages are received as machines are claimed: this one is to be the first.
        self.eventually(
            "it is announced",
            lambda: self.sqs.receive_message(QueueUrl=self.queue(), VisibilityTimeout=0).get("Messages"),
        )
        self.sqs.purge_queue(QueueUrl=self.queue())
        self.sqs.send_message(QueueUrl=self.queue(), MessageBody="{ this is not JSON")
        self.phase(self.ask("7102"), "Ready")

        def dead():
            reply = self.sqs.receive_message(QueueUrl=self.queue("-dead"), MaxNumberOfMessages=10, VisibilityTimeout=0)
            return [message for message in reply.get("Messages", []) if "not JSON" in message["Body"]]

        self.eventually("it is a dead letter", dead)

    def test_lies_on_the_queue_lend_nothing(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.phase(self.ask("7103"), "Ready")
        held = self.instance(warm)
        for body in (
            {
                name: held[name]
                for name in ("instanceId", "resourceClass", "instanceType", "cpu", "mmem", "usageClass", "claimId")
            },
            {"id": "i-0123456789abcdef0", "resourceClass": "small", "claimId": "none"},
        ):
            self.sqs.send_message(QueueUrl=self.queue(), MessageBody=json.dumps(body))
        other = self.ask("7104")
        self.phase(other, "Pending", "Fulfilling")
        self.settle()
        self.assertEqual(self.instance(warm)["claimId"], held["claimId"])
        self.assertEqual(self.holders(other), [])

    def test_emptying_the_queue_costs_time_only(self):
        self.pool(desired=2, max=2)
        self.pooled(2)
        self.sqs.purge_queue(QueueUrl=self.queue())
        self.assertEqual(len(self.phase(self.ask("7105", count=2), "Ready")["instances"]), 2)
