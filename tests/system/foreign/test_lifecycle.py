"""A machine's whole life: asked for, registered, given back, cleaned, lent again, ended."""

import records
from history import state_of
from yard import Scenario


class Lifecycle(Scenario):
    def test_a_cold_request_is_served_by_new_machines_which_then_wait_in_the_pool(self):
        self.pool(desired=0)
        key = self.ask("1001", count=2)
        ready = self.phase(key, "Ready")
        self.assertEqual(len(ready["instances"]), 2)
        self.assertEqual(ready["observedGeneration"], 1)
        for attribute in ("acceptedAt", "deadline", "readyAt"):
            records.time_of(ready[attribute])
        holders = self.holders(key)
        self.assertEqual(sorted(item["instanceId"] for item in holders), sorted(ready["instances"]))
        self.assertEqual({item["state"] for item in holders}, {"running"})
        self.assertEqual(len({item["claimId"] for item in holders}), 2, "a claim id is shared")
        self.table.release(key)
        released = self.phase(key, "Released")
        self.assertEqual(released["instances"], [])
        self.assertEqual(sorted(released["served"]), sorted(ready["instances"]))
        self.assertGreater(released["expiresAt"], 0)
        self.pooled(2)
        for item in holders:
            machine = records.instance_key(item["instanceArn"])
            whole = ["created", "running", "idle", "idle pooled"]
            self.eventually("the stream tells it all", lambda: self.history.path(machine) == whole)

    def test_a_warm_machine_is_kept_ahead_of_need_and_lent_from_the_pool(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.assertEqual((warm["runId"], warm["claimId"], warm.get("uses", 0)), ("", "", 0))
        key = self.ask("1002")
        ready = self.phase(key, "Ready")
        self.assertEqual(ready["instances"], [warm["instanceId"]])
        self.table.release(key)
        self.phase(key, "Released")
        (again,) = self.pooled(1)
        self.assertEqual(again["instanceId"], warm["instanceId"])
        self.assertEqual(again["uses"], 1)
        whole = ["created", "idle pooled", "claimed", "running", "idle", "idle pooled"]
        key = records.instance_key(warm["instanceArn"])
        self.eventually("the stream tells it all", lambda: self.history.path(key) == whole)

    def test_one_machine_serves_run_after_run_each_under_a_claim_of_its_own(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        for run in ("2001", "2002", "2003"):
            key = self.ask(run)
            self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
            self.table.release(key)
            self.phase(key, "Released")
            self.pooled(1)
        claims = self.machines.of(warm).claims
        self.assertEqual(len(set(claims)), 3, claims)
        self.assertEqual(self.instance(warm)["uses"], 3)

    def test_what_ec2_is_asked_for_is_written_first_and_bound_to_its_request(self):
        self.pool()
        key = self.ask("1003", count=2)
        self.phase(key, "Ready")
        launches = [item for item in self.table.all("launch") if item.get("request", {}).get("pk") == key["pk"]]
        self.assertTrue(launches)
        for launch in launches:
            self.assertEqual(launch["clientToken"], f"{launch['launchId']}-{launch['attempt']}")
            self.assertLessEqual(launch["count"], 40)
            self.assertEqual(self.history.path(launch)[0], "Intent")
            born = self.history.of(launch)[0][1]
            self.assertFalse(born.get("instances"), "born with machines")
        bound = [one for launch in launches if launch["phase"] == "Bound" for one in launch["instances"]]
        self.assertEqual(len(bound), 2)

    def test_the_floor_of_the_pool_is_filled_again_after_a_machine_was_lent(self):
        self.pool(desired=1, max=3)
        self.pooled(1)
        key = self.ask("1004")
        self.phase(key, "Ready")
        self.pooled(1)
        self.assertEqual(len(self.instances()), 2)

    def test_a_machine_is_never_lent_outside_its_trust_domain(self):
        self.pool(desired=0, max=5, reuseWithin="repository")
        first = self.ask("1005", repository="octo/app")
        (mine,) = self.phase(first, "Ready")["instances"]
        self.table.release(first)
        self.phase(first, "Released")
        self.pooled(1)
        other = self.ask("1006", repository="octo/other")
        self.assertNotIn(mine, self.phase(other, "Ready")["instances"])
        same = self.ask("1007", repository="octo/app")
        self.assertEqual(self.phase(same, "Ready")["instances"], [mine])

    def test_a_class_that_never_reuses_ends_its_machine_after_one_claim(self):
        self.pool(desired=0, reuseWithin="none")
        key = self.ask("1008")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        self.table.release(key)
        self.phase(key, "Released")
        self.ended(held, "max-uses")

    def test_a_machine_that_is_gone_leaves_a_tombstone_and_no_agent_record(self):
        self.pool(desired=1, max=1, idleSeconds=1800)
        (warm,) = self.pooled(1)
        self.machines.of(warm).says = {"signal": "UD_FAILED", "signalClaimId": "", "signalRunId": ""}
        self.ended(warm, "boot-failed")
        gone = self.eventually("it is seen gone", lambda: (now := self.instance(warm)) and "goneAt" in now and now)
        self.assertGreater(gone["expiresAt"], 0)
        self.assertIsNone(self.table.get(records.agent_key(warm["instanceArn"])))
        self.pooled(1)

    def test_no_machine_is_lent_with_less_than_thirty_seconds_left(self):
        self.pool(desired=0, max=2, idleSeconds=20)
        first = self.ask("1009")
        self.phase(first, "Ready")
        self.table.release(first)
        self.phase(first, "Released")
        (idle,) = self.pooled(1)
        key = self.ask("1010")
        self.assertNotIn(idle["instanceId"], self.phase(key, "Ready")["instances"])

    def test_a_class_that_keeps_machines_keeps_them_for_a_minute_at_least(self):
        # As another program may write it: `apply` refuses so little where machines are kept.
        self.pool(desired=0, max=2, idleSeconds=20)
        self.table.amend(records.pool_key("small"), desired=1)
        (warm,) = self.pooled(1)
        given = records.time_of(warm["threshold"]) - records.time_of(warm["thresholdSetAt"])
        self.assertEqual(given.total_seconds(), 60)
        key = self.ask("1011")
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])

    def test_a_request_released_before_anybody_took_it_on_is_released_and_nothing_else(self):
        self.pool(paused=True)
        self.operator.end(outright=True)
        key = self.ask("1012")
        self.table.release(key)
        self.start_operator()
        over = self.phase(key, "Released")
        for attribute in ("acceptedAt", "deadline", "readyAt", "conditions"):
            self.assertNotIn(attribute, over)
        self.assertGreater(over["expiresAt"], 0)


class Restart(Scenario):
    def test_a_killed_operator_is_taken_up_where_it_stood(self):
        self.pool(desired=1, max=3)
        (warm,) = self.pooled(1)
        self.machines.of(warm).registers = "silent"
        key = self.ask("3001")
        self.eventually("it is claimed", lambda: state_of(self.instance(warm)) == "claimed")
        self.operator.end(outright=True)
        self.machines.of(warm).registers = "ok"
        self.start_operator()
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
        self.table.release(key)
        self.phase(key, "Released")
        self.assertNotEqual(self.instance(warm)["state"], "terminated")

    def test_intents_written_while_nobody_ran_are_served(self):
        self.pool()
        self.operator.end(outright=True)
        key = self.ask("3002", count=2)
        self.start_operator()
        self.assertEqual(len(self.phase(key, "Ready")["instances"]), 2)

    def test_an_operator_asked_to_end_does_so_and_says_success(self):
        self.assertEqual(self.operator.end(), 0)

    def test_a_lease_given_up_keeps_its_token_and_the_next_holder_raises_it(self):
        def lease():
            found = (item for item in self.table.all("lease") if item["pk"] == "lease#operator")
            return next(found, {"holder": ""})

        held = self.eventually("it is held", lambda: (now := lease())["holder"] and now)
        self.operator.end()
        given_up = lease()
        self.assertEqual((given_up["holder"], given_up["token"]), ("", held["token"]))
        self.start_operator()
        again = self.eventually("it is held", lambda: (now := lease())["holder"] and now)
        self.assertEqual(again["token"], held["token"] + 1)


class TwoOperators(Scenario):
    operators = 2

    def test_two_operators_never_lend_one_machine_twice_nor_too_many(self):
        self.pool(desired=3, max=6)
        self.pooled(3)
        keys = [self.ask(f"40{number:02}", count=2) for number in range(3)]
        held = [one for key in keys for one in self.phase(key, "Ready")["instances"]]
        self.assertEqual(len(held), 6)
        self.assertEqual(len(set(held)), 6, "one machine for two requests")
        self.assertLessEqual(len(self.instances()), 6)
        lease = [item for item in self.table.all("lease") if item.get("holder")]
        self.assertTrue(lease)
        # Where its process had to wait, a lease of a second has just gone to the other.
        leaders = lambda: sum(operator.metric("runyard_leader") or 0 for operator in self.running)  # noqa: E731
        self.eventually("one leads", lambda: leaders() == 1)

    def test_the_second_goes_on_when_the_first_is_killed(self):
        self.pool()
        leader = self.eventually(
            "one leads", lambda: next((one for one in self.running if one.metric("runyard_leader") == 1), None)
        )
        leader.end(outright=True)
        self.running.remove(leader)
        self.phase(self.ask("4100", count=2), "Ready")
