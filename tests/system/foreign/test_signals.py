"""What the operator believes of an agent, and what it does when the agent says nothing, or something bad."""

import records
from history import state_of
from yard import Scenario


class Signals(Scenario):
    def test_only_an_idle_pooled_machine_is_claimed(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        first = self.ask("5001")
        self.phase(first, "Ready")
        self.machines.of(warm).cleans = "silent"
        self.table.release(first)
        self.eventually("it is idle, not pooled", lambda: state_of(self.instance(warm)) == "idle")
        second = self.ask("5002")
        self.phase(second, "Pending", "Fulfilling")
        self.settle()
        self.assertEqual(state_of(self.instance(warm)), "idle")
        self.assertEqual(self.phase(first, "Releasing")["desired"], "released")
        self.machines.of(warm).cleans = "ok"
        self.assertEqual(self.phase(second, "Ready")["instances"], [warm["instanceId"]])

    def test_a_registration_of_an_older_claim_is_not_believed(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        first = self.ask("5003")
        self.phase(first, "Ready")
        old = self.instance(warm)["claimId"]
        self.table.release(first)
        self.phase(first, "Released")
        self.pooled(1)
        self.machines.of(warm).says = {"signal": "UD_REG_OK", "signalClaimId": old, "signalRunId": "5004"}
        second = self.ask("5004")
        self.eventually("it is claimed", lambda: state_of(self.instance(warm)) == "claimed")
        self.settle()
        self.assertEqual(state_of(self.instance(warm)), "claimed")
        self.machines.of(warm).says = None
        self.phase(second, "Ready")

    def test_a_clean_up_of_an_older_claim_pools_nothing(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        first = self.ask("5005")
        self.phase(first, "Ready")
        old = self.instance(warm)["claimId"]
        self.table.release(first)
        self.phase(first, "Released")
        second = self.ask("5006")
        self.phase(second, "Ready")
        self.machines.of(warm).says = {"signal": "UD_REMOVE_REG_OK", "signalClaimId": old, "signalRunId": ""}
        self.table.release(second)
        self.eventually("it is idle", lambda: state_of(self.instance(warm)) == "idle")
        self.settle()
        self.assertEqual(state_of(self.instance(warm)), "idle")
        self.machines.of(warm).says = None
        self.phase(second, "Released")

    def test_a_first_failed_registration_sends_the_machine_to_be_cleaned_and_the_request_elsewhere(self):
        self.pool(desired=2, max=2)
        for warm in self.pooled(2):
            self.machines.of(warm).registers = "silent"
        key = self.ask("5007")
        (bad,) = self.eventually("one is claimed", lambda: self.instances("claimed"))
        (good,) = [item for item in self.instances() if item["instanceId"] != bad["instanceId"]]
        self.machines.of(good).registers = "ok"
        self.machines.of(bad).registers = "failed"
        self.assertEqual(self.phase(key, "Ready")["instances"], [good["instanceId"]])
        self.eventually("the bad one is pooled again", lambda: state_of(self.instance(bad)) == "idle pooled")
        again = self.ask("5008")
        self.ended(bad, "registration-failed")
        machine = records.instance_key(bad["instanceArn"])
        whole = ["created", "idle pooled", "claimed", "idle", "idle pooled", "claimed", "terminated"]
        self.eventually("the stream tells it all", lambda: self.history.path(machine) == whole)
        self.phase(again, "Ready")

    def test_a_failed_registration_of_a_new_machine_ends_it(self):
        bad = []

        def first_fails(machine, instance):
            if not bad:
                bad.append(instance)
                machine.registers = "failed"

        self.machines.prepare = first_fails
        self.pool()
        key = self.ask("5009")
        ready = self.phase(key, "Ready")
        self.ended(bad[0], "registration-failed")
        self.assertNotIn(bad[0]["instanceId"], ready["instances"])

    def test_a_failed_clean_up_ends_the_machine_and_releases_the_request(self):
        self.pool()
        key = self.ask("5010")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.machines.of(held).cleans = "failed"
        self.table.release(key)
        self.ended(held, "cleanup-failed")
        self.phase(key, "Released")

    def test_a_failed_boot_ends_the_machine_and_the_request_gets_another(self):
        bad = []

        def first_fails(machine, instance):
            if not bad:
                bad.append(instance)
                machine.boots = "failed"

        self.machines.prepare = first_fails
        self.pool()
        key = self.ask("5011")
        self.phase(key, "Ready")
        self.ended(bad[0], "boot-failed")

    def test_a_machine_about_to_be_interrupted_is_ended_and_replaced(self):
        self.pool()
        key = self.ask("5012")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.machines.of(held).extra = {"interruption": {"action": "terminate", "at": records.now()}}
        self.ended(held, "interrupted")
        replaced = lambda: [  # noqa: E731
            item
            for item in self.holders(key)
            if item["state"] == "running" and item["instanceId"] != held["instanceId"]
        ]
        self.eventually("another runs in its place", replaced)
        record = self.table.get(key)
        self.assertEqual(record["phase"], "Ready")
        self.assertIn("Degraded", [condition["type"] for condition in record.get("conditions", [])])


class Silence(Scenario):
    timing = {"stale": "3s"}

    def test_a_machine_whose_heart_stops_is_unhealthy(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.machines.of(warm).beats = False
        self.ended(warm, "unhealthy")
        self.eventually("another takes its place", lambda: self.instances("idle pooled"))


class Deadlines(Scenario):
    timing = {"created": "4s", "claimed": "4s", "cleanup": "4s"}

    def test_a_machine_that_never_finishes_booting_passes_its_threshold(self):
        def mute(machine, instance):
            machine.boots = "silent"

        self.machines.prepare = mute
        self.pool(desired=1, max=1)
        (born,) = self.eventually("one is created", lambda: self.instances("created"))
        self.ended(born, "threshold")

    def test_a_claimed_machine_that_never_registers_passes_its_threshold_and_is_replaced(self):
        self.pool(desired=1, max=2)
        (warm,) = self.pooled(1)
        self.machines.of(warm).registers = "silent"
        key = self.ask("5013")
        self.ended(warm, "threshold")
        self.assertNotIn(warm["instanceId"], self.phase(key, "Ready")["instances"])

    def test_a_machine_that_is_never_cleaned_passes_its_threshold(self):
        self.pool()
        key = self.ask("5014")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.machines.of(held).cleans = "silent"
        self.table.release(key)
        self.ended(held, "threshold")
        self.phase(key, "Released")

    def test_an_idle_machine_nobody_wants_passes_its_threshold_after_idle_seconds(self):
        self.pool(desired=0, idleSeconds=2)
        key = self.ask("5015")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.table.release(key)
        self.ended(held, "threshold")

    def test_an_idle_machine_within_the_floor_has_its_threshold_renewed(self):
        # As another program may write it: `apply` refuses so little where machines are kept.
        # Read as 60: renewed when 45 s of it are left.
        self.pool(desired=0, max=1, idleSeconds=3)
        self.table.amend(records.pool_key("small"), desired=1)
        (warm,) = self.pooled(1)
        renewed = lambda: (now := self.instance(warm))["threshold"] > warm["threshold"] and now  # noqa: E731
        again = self.eventually("it is renewed", renewed)
        self.assertEqual(state_of(again), "idle pooled")
        self.assertGreater(again["thresholdSetAt"], warm["thresholdSetAt"])
