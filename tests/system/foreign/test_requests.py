"""What a workflow may count on: how many it gets, by when, and what it is told when it does not."""

from datetime import datetime, timedelta, timezone

from records import Refused, decoded, now, pool_key, time_of
from yard import Scenario


def conditions(record: dict) -> str:
    return " ".join(f"{condition['type']} {condition['reason']}" for condition in record.get("conditions", []))


class Requests(Scenario):
    # So that a machine that says nothing is there for as long as a test is about it.
    timing = {"created": "9m", "claimed": "9m"}

    def test_a_request_never_holds_more_than_it_asked_for(self):
        self.pool(desired=5, max=8)
        self.pooled(5)
        key = self.ask("6001", count=3)
        self.phase(key, "Ready")
        self.settle()
        self.assertEqual(len(self.holders(key)), 3)
        held = [len(new.get("instances", [])) for _, new in self.history.of(key) if new]
        self.assertLessEqual(max(held), 3, held)

    def test_warm_and_cold_machines_together_make_one_request_ready(self):
        self.pool(desired=1, max=4)
        (warm,) = self.pooled(1)
        key = self.ask("6002", count=3)
        ready = self.phase(key, "Ready")
        self.assertEqual(len(set(ready["instances"])), 3)
        self.assertIn(warm["instanceId"], ready["instances"])

    def test_an_unknown_class_fails_at_once_and_says_why(self):
        key = self.ask("6003", resource_class="no-such-class")
        failed = self.phase(key, "Failed")
        self.assertIn("UnknownClass", conditions(failed))
        self.assertIn("no-such-class", failed["message"])
        self.assertEqual(failed.get("instances", []), [])

    def test_more_than_the_class_may_have_fails_at_once(self):
        self.pool(max=2)
        failed = self.phase(self.ask("6004", count=3), "Failed")
        self.assertIn("2", failed["message"])
        self.assertEqual(self.instances(), [])

    def test_a_repository_that_may_not_use_the_class_is_refused(self):
        self.pool(repositories=["octo/*"])
        failed = self.phase(self.ask("6005", repository="stranger/app"), "Failed")
        self.assertIn("NotAllowed", conditions(failed))

    def test_a_number_that_sizing_set_counts_before_the_spec(self):
        self.pool(desired=0, max=3, sizing={"waitP95": "20s"})
        key = pool_key("small")
        # An hour that is not over: one that is would be learned, and the number would be the operator's.
        until = (datetime.now(timezone.utc) + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
        stamp = lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: E731
        demand = {"since": stamp(until - timedelta(days=30)), "until": stamp(until), "bins": "0=1:100"}
        sized = {"desired": 1, "at": stamp(datetime.now(timezone.utc)), "reason": "as the test says"}
        self.table.amend(key, sizedDesired=sized, demand=demand)
        self.pooled(1)

    def test_a_class_that_is_shared_says_whose_share_a_request_has_and_what_was_used(self):
        self.pool(desired=1, max=2, sharing={"by": "owner", "weights": {"octo": 3}, "quotas": {"*": {"maxMachines": 1}}})
        self.pooled(1)
        key = self.ask("6101")
        ready = self.phase(key, "Ready")
        self.assertEqual(ready["share"], key["pk"].split("#")[1].split("/")[0].lower())
        self.assertNotIn("priorityValue", ready)
        used = self.eventually("its use is written", lambda: self.table.get(pool_key("small")).get("usage"))
        self.assertEqual(sorted(used), ["at", "other", "sums"])
        self.assertIn(ready["share"], used["sums"])
        many = self.phase(self.ask("6102", count=2), "Failed")
        self.assertIn("Quota", conditions(many))
        unknown = self.phase(self.ask("6103", priority="urgent"), "Failed")
        self.assertIn("NotAllowed", conditions(unknown))
        self.assertIn("may use none", unknown["message"])

    def test_an_impossible_intent_is_refused_as_invalid(self):
        self.pool()
        failed = self.phase(self.ask("6006", count=2, minCount=5), "Failed")
        self.assertIn("Invalid", conditions(failed))

    def test_globs_outside_their_bounds_are_refused_and_not_copied(self):
        self.pool()
        for number, globs in enumerate((["c*"] * 41, ["x" * 31], ["x" * 60_000], ["c6_large"])):
            key = self.ask(f"601{number}", allowedInstanceTypes=globs)
            failed = self.phase(key, "Failed")
            self.assertIn("Invalid", conditions(failed))
            self.assertIn("allowedInstanceTypes", failed["message"])
            self.assertEqual((failed["allowedInstanceTypes"], failed.get("accepted")), (globs, None))
        self.phase(self.ask("6019", allowedInstanceTypes=["c*", "m*", "t*", "l*"]), "Ready")

    def test_a_request_of_more_than_64_kib_is_left_alone_and_serves_nobody_worse(self):
        self.pool()
        large = self.ask("6020", allowedInstanceTypes=["a*" * 97_000, "b*" * 97_000])
        before = self.table.get(large)
        self.phase(self.ask("6021"), "Ready")
        self.settle()
        self.assertEqual(self.table.get(large), before)
        self.assertGreaterEqual(self.operator.metric("runyard_unreadable_records"), 1)

    def test_a_request_made_anew_gets_no_machine_of_the_one_before(self):
        self.pool()
        key = self.ask("6022", count=2)
        first = self.phase(key, "Ready")["instances"]
        self.table.delete(key)
        self.by_hand.append("request#octo/app#6022 request#default#1: deleted while Ready")
        self.ask("6022", count=1)
        self.eventually(
            "one machine serves it, and none of the first one's",
            lambda: len(held := self.holders(key)) == 1 and held[0]["instanceId"] not in first,
        )

    def partly(self, run_id: str, **intent) -> dict:
        """A request for three, of which two run and the third never will, at its deadline; its key."""

        def third_is_silent(machine, instance):
            machine.registers = "ok" if len(self.machines.machines) < 2 else "silent"

        self.machines.prepare = third_is_silent
        self.pool(max=3)
        key = self.ask(run_id, count=3, timeoutSeconds=3600, **intent)
        self.eventually(
            "two run, and the third is there",
            lambda: len(held := [one["state"] for one in self.holders(key)]) == 3 and held.count("running") == 2,
        )
        # Not sooner, and not by seconds: how long it takes until two run depends on how busy this machine is.
        self.table.amend(key, deadline=now())
        return key

    def test_all_or_nothing_fails_at_the_deadline_and_gives_everything_back(self):
        key = self.partly("6007")
        failed = self.phase(key, "Failed")
        self.assertNotIn("Ready", self.history.path(key))
        self.assertTrue(failed["message"])
        self.pooled(3)
        self.assertEqual(self.table.get(key).get("instances", []), [])

    def test_with_a_minimum_it_is_ready_at_the_deadline_with_what_there_is(self):
        key = self.partly("6008", minCount=2)
        ready = self.phase(key, "Ready")
        # As times: as texts 51.564Z would come before 51.56Z.
        at, deadline = (datetime.fromisoformat(ready[name]) for name in ("readyAt", "deadline"))
        self.assertGreaterEqual(at, deadline)
        self.assertEqual(len([one for one in self.holders(key) if one["state"] == "running"]), 2)

    def test_the_oldest_request_of_a_class_is_served_first(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        first = self.ask("6009")
        self.phase(first, "Ready")
        waiting = []
        for run in ("6010", "6011"):
            waiting.append(self.ask(run))
            self.phase(waiting[-1], "Pending", "Fulfilling")
        self.table.release(first)
        self.assertEqual(self.phase(waiting[0], "Ready")["instances"], [warm["instanceId"]])
        self.assertIn(self.table.get(waiting[1])["phase"], ("Pending", "Fulfilling"))
        self.table.release(waiting[0])
        self.phase(waiting[1], "Ready")

    def test_a_request_released_before_it_was_served_holds_nothing(self):
        self.pool(desired=0, max=2)
        key = self.ask("6012", count=2)
        self.table.release(key)
        self.phase(key, "Released")
        self.settle()
        self.assertEqual(self.holders(key), [])

    def test_a_newer_attempt_releases_the_older_one_of_the_same_name(self):
        self.pool(max=4)
        first = self.ask("6013")
        other = self.ask("6013", name="other")
        self.phase(first, "Ready")
        self.phase(other, "Ready")
        second = self.ask("6013", attempt=2)
        self.phase(second, "Ready")
        released = self.phase(first, "Released")
        self.assertEqual((released["releasedBy"], released["desired"]), ("superseded", "provisioned"))
        self.assertEqual(self.table.get(other)["phase"], "Ready")

    def test_after_acceptance_a_raised_count_is_served_and_other_changes_are_not(self):
        self.pool(max=3)
        key = self.ask("6020")
        ready = self.phase(key, "Ready")
        self.assertEqual((ready["accepted"]["count"], ready["accepted"]["resourceClass"]), (1, "small"))
        self.table.amend(key, count=9, timeoutSeconds=1, generation=2)
        told = self.eventually(
            "the change is told of", lambda: (now := self.table.get(key)) and "IntentIgnored" in conditions(now) and now
        )
        (ignored,) = [c for c in told["conditions"] if c["type"] == "IntentIgnored"]
        self.assertIn("count", ignored["message"])
        self.assertIn("timeoutSeconds", ignored["message"])
        self.assertEqual((told["observedGeneration"], told["phase"], len(told["instances"])), (2, "Ready", 1))
        self.table.amend(key, count=2, generation=3)
        self.eventually("two are held", lambda: len(self.table.get(key)["instances"]) == 2)
        self.assertEqual(self.table.get(key)["accepted"]["count"], 2)

    def test_after_acceptance_a_raised_maximum_runtime_is_served_and_a_lowered_one_is_not(self):
        self.pool(max=3, maxRuntimeMinutes=60)
        key = self.ask("6023", maxRuntimeMinutes=30)
        ready = time_of(self.phase(key, "Ready")["readyAt"])
        (held,) = self.holders(key)
        until = lambda: time_of(self.instance(held)["threshold"]) - ready  # noqa: E731
        self.assertGreaterEqual(until().total_seconds(), 30 * 60)
        self.table.amend(key, maxRuntimeMinutes=60, generation=2)
        self.eventually("it is accepted", lambda: self.table.get(key)["accepted"]["maxRuntimeMinutes"] == 60)
        self.eventually("its machine may serve as long", lambda: until().total_seconds() >= 60 * 60)
        self.table.amend(key, maxRuntimeMinutes=20, generation=3)
        told = self.eventually(
            "the change is told of", lambda: (now := self.table.get(key)) and "IntentIgnored" in conditions(now) and now
        )
        self.assertEqual((told["phase"], told["accepted"]["maxRuntimeMinutes"]), ("Ready", 60))

    def test_a_label_of_a_live_request_is_refused_whatever_its_case(self):
        self.pool(max=4)
        first = self.ask("6021", name="gpu")
        self.phase(first, "Ready")
        other = self.ask("6021-GPU", repository="Octo/Other")
        failed = self.phase(other, "Failed")
        self.assertIn("LabelTaken", conditions(failed))
        self.assertEqual(failed["repository"], "Octo/Other")
        self.phase(self.ask("6022", name="gpu"), "Ready")

    def test_a_request_that_ended_a_day_ago_is_in_the_history_and_its_key_stays_used(self):
        self.pool(max=4)
        key, later = self.ask("6031"), self.ask("6032")
        for one in (key, later):
            self.phase(one, "Ready")
            self.table.release(one)
            self.phase(one, "Released")
        before = self.table.get(key)
        a_day_ago = datetime.now(timezone.utc) - timedelta(hours=25)
        self.table.amend(key, endedAt=a_day_ago.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        self.eventually("it left the table", lambda: self.table.get(key) is None)
        query = {
            "TableName": f"{self.table_name}-history",
            "KeyConditionExpression": "pk = :pk AND sk = :sk",
            "ExpressionAttributeValues": {":pk": {"S": key["pk"]}, ":sk": {"S": key["sk"]}},
        }
        (kept,) = self.dynamodb.query(**query)["Items"]
        moved = {name: value for name, value in decoded(kept).items() if before.get(name) != value}
        self.assertEqual(sorted(moved), ["endedAt", "updatedAt", "version"])
        self.assertEqual(set(before) - set(decoded(kept)), set())
        again = self.ask("6031")
        self.assertEqual(again, key)
        failed = self.phase(again, "Failed")
        self.assertIn("KeyTaken", conditions(failed))
        self.assertEqual(failed.get("served", []), [])

    def test_a_class_deleted_and_made_anew_is_served_by_its_new_record(self):
        self.pool(desired=1, max=2)
        self.pooled(1)
        self.eventually("its status is written", lambda: self.table.get(pool_key("small"))["version"] > 2)
        former = self.table.get(pool_key("small"))
        self.table.delete(pool_key("small"))
        self.pool(desired=2, max=2)
        self.assertNotEqual(self.table.get(pool_key("small"))["uid"], former["uid"])
        self.pooled(2)

    def test_the_same_key_cannot_be_written_twice(self):
        self.pool()
        key = self.ask("6014")
        with self.assertRaises(Refused):
            self.ask("6014", count=2)
        self.phase(key, "Ready")

    def test_usage_classes_do_not_mix(self):
        self.pool(desired=1, max=3, usageClass="on-demand")
        (warm,) = self.pooled(1)
        key = self.ask("6015", usageClass="spot")
        ready = self.phase(key, "Ready")
        self.assertNotIn(warm["instanceId"], ready["instances"])
        self.assertEqual({one["usageClass"] for one in self.holders(key)}, {"spot"})

    def test_the_ceiling_of_a_class_holds_over_all_requests(self):
        self.pool(max=3)
        keys = [self.ask(f"61{number:02}", count=2) for number in range(3)]
        self.eventually("one is ready", lambda: [key for key in keys if self.table.get(key).get("phase") == "Ready"])
        self.settle()
        self.assertLessEqual(len(self.instances()), 3)
        while left := [key for key in keys if self.table.get(key).get("phase") != "Released"]:
            ready = self.eventually(
                "the next is ready", lambda: [key for key in left if self.table.get(key).get("phase") == "Ready"]
            )
            self.table.release(ready[0])
            self.phase(ready[0], "Released")
            self.assertLessEqual(len(self.instances()), 3)
