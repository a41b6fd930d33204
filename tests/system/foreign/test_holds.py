"""A person keeps a machine to look at it (contract 2.10), and asks what was written on it (2.11)."""

from datetime import datetime, timedelta, timezone

import records
from history import state_of
from yard import Scenario


def until(seconds: float) -> str:
    at = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Holds(Scenario):
    def hold(self, instance: dict, seconds: float) -> None:
        hold = {"by": "foreign:ada", "until": until(seconds)}
        self.table.amend(records.instance_key(instance["instanceArn"]), hold=hold)

    def held(self, instance: dict) -> dict:
        return self.eventually(
            "it is held", lambda: (now := self.instance(instance)) and state_of(now) == "idle held" and now
        )

    def test_a_machine_that_is_held_serves_its_run_and_nobody_after_it(self):
        self.pool(max=1)
        first = self.ask("9001")
        self.phase(first, "Ready")
        (mine,) = self.holders(first)
        self.hold(mine, 3600)
        self.settle()
        self.assertEqual(state_of(self.instance(mine)), "running")
        self.table.release(first)
        self.phase(first, "Released")
        kept = self.held(mine)
        self.assertEqual(records.time_of(kept["threshold"]), records.time_of(kept["hold"]["until"]))
        second = self.ask("9002")
        self.phase(second, "Pending", "Fulfilling")
        self.settle()
        self.assertEqual((state_of(self.instance(mine)), self.holders(second)), ("idle held", []))
        # A person ends it as any other.
        self.runyard("release-hold", mine["instanceId"])
        self.ended(mine, "expired")
        self.assertNotIn(mine["instanceId"], self.phase(second, "Ready")["instances"])

    def test_a_hold_ends_by_its_class_however_long_the_person_wants_it(self):
        self.pool(desired=1, max=2, maxHoldSeconds=4)
        (warm,) = self.pooled(1)
        self.hold(warm, 3600)
        self.held(warm)
        self.eventually("another takes its place in the pool", lambda: self.instances("idle pooled"))
        self.ended(warm, "expired")

    def test_a_machine_whose_first_boot_fails_is_kept_for_who_holds_it(self):
        def silent(machine, instance):
            machine.boots = "silent"

        self.machines.prepare = silent
        self.pool(desired=1, max=1)
        (born,) = self.eventually("one is created", lambda: self.instances("created"))
        self.eventually("it has an agent", lambda: born["instanceArn"] in self.machines.machines)
        self.hold(born, 3600)
        self.machines.of(born).boots = "failed"
        self.held(born)
        self.settle()
        self.assertEqual(state_of(self.instance(born)), "idle held")

    def test_logs_are_asked_for_by_the_verb_and_by_a_write(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        shown = self.runyard("logs", warm["instanceId"], "--timeout", "30s").stdout
        self.assertIn(f"the first boot of {warm['instanceArn']}", shown)
        record = self.instance(warm)
        log = self.table.get(records.log_key(warm["instanceArn"]))
        self.assertEqual((log["requestedAt"], log["because"]), (record["logsRequestedAt"], "asked"))
        asked = until(1)
        self.table.amend(
            records.instance_key(warm["instanceArn"]), logsRequestedAt=asked, logsRequestedBy="foreign:ada"
        )
        self.eventually(
            "it is answered",
            lambda: self.table.get(records.log_key(warm["instanceArn"]))["requestedAt"] == asked,
        )
