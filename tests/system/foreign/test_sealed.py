"""Registrations come sealed to one machine's key, for one claim; nobody else can read them anywhere."""

import json

import records
from history import state_of
from yard import REPOSITORY, WithGitHub


class Sealed(WithGitHub):
    timing = {"claimed": "4s", "created": "15s"}

    def judge(self) -> None:
        super().judge()
        secrets = self.github.minted | {"github-token-SECRET-000000"}
        told = "".join("".join(operator.log) for operator in self.running) + repr(self.history.steps)
        self.assertFalse([secret for secret in secrets if secret in told], "a secret stands in a record or a log line")

    def test_a_registration_and_a_removal_are_sealed_to_the_machine_and_name_its_claim(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        key = self.ask("9001")
        self.phase(key, "Ready")
        machine, held = self.machines.of(warm), self.instance(warm)
        box = machine.opened["registration"]
        self.assertEqual(box["claimId"], held["claimId"])
        self.assertIn(box["token"], self.github.minted)
        self.assertEqual(box["labels"], ["9001"])
        self.assertTrue(box["url"].startswith("http") and box["runnerName"])
        self.assertIsInstance(box["seq"], int)
        records.time_of(box["expiresAt"])
        self.assertNotIn("registration", held)
        self.table.release(key)
        self.phase(key, "Released")
        removal = machine.opened["removal"]
        self.assertEqual(removal["claimId"], box["claimId"])
        self.assertIn(removal["token"], self.github.minted)
        self.assertTrue(removal["url"].startswith("http"))
        records.time_of(removal["expiresAt"])

    def test_a_named_request_has_a_label_of_its_own_and_no_two_claims_share_a_runner_name(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        names = []
        for run in ("9002", "9003"):
            key = self.ask(run, name="build")
            self.phase(key, "Ready")
            box = self.machines.of(warm).opened["registration"]
            self.assertEqual(box["labels"], [f"{run}-build"])
            names.append(box["runnerName"])
            self.table.release(key)
            self.phase(key, "Released")
        self.assertEqual(len(set(names)), 2, names)

    def test_a_pools_extra_labels_never_stand_alone(self):
        self.pool(labels=["gpu"])
        key = self.ask("9004")
        self.phase(key, "Ready")
        (held,) = self.holders(key)
        labels = self.machines.of(held).opened["registration"]["labels"]
        self.assertEqual(sorted(labels), ["9004", "9004-gpu", "9004.gpu"])

    def test_a_secret_part_ends_the_label_and_a_class_may_want_one(self):
        self.pool(desired=1, max=1, labelMode="secret", labels=["gpu"])
        (warm,) = self.pooled(1)
        refused = self.phase(self.ask("9008"), "Failed")
        self.assertIn("NotAllowed", [condition["reason"] for condition in refused["conditions"]])
        self.assertIn("--secret-label", refused["message"])
        key = self.ask("9009", labelSuffix="k3x9q0ab")
        ready = self.phase(key, "Ready")
        self.assertEqual(ready["accepted"]["labelSuffix"], "k3x9q0ab")
        labels = self.machines.of(warm).opened["registration"]["labels"]
        self.assertEqual(sorted(labels), ["9009-k3x9q0ab", "9009-k3x9q0ab-gpu", "9009-k3x9q0ab.gpu"])

    def test_a_machine_learns_what_its_class_keeps_and_nobody_vouches_for_a_run_that_github_does_not_show(self):
        self.pool(desired=1, max=1, keep=[{"name": "npm", "path": "~/.npm"}])
        (warm,) = self.pooled(1)
        machine = self.machines.of(warm)
        generation = {"repository": REPOSITORY, "generation": 1, "bytes": 1024, "usedAt": "2026-01-02T03:04:05Z"}
        machine.extra = {"kept": {"npm": generation}}
        key = self.ask("9011")
        self.phase(key, "Ready")
        (kept,) = machine.opened["registration"]["keep"]
        self.assertEqual((kept["name"], kept["path"], kept["writeFrom"]), ("npm", "~/.npm", "default-branch"))
        self.table.release(key)
        self.phase(key, "Released")
        seen = [new["promotion"] for _, new in self.history.of(records.instance_key(warm["instanceArn"])) if new and "promotion" in new]
        self.assertEqual([promotion["names"] for promotion in seen if promotion["names"]], [])

    def test_a_new_machine_gets_its_registration_once_its_key_is_known(self):
        self.pool()
        key = self.ask("9005", count=2)
        self.phase(key, "Ready")
        for held in self.holders(key):
            box = self.machines.of(held).opened["registration"]
            self.assertEqual(box["claimId"], held["claimId"])
            self.assertTrue(held["publicKey"])

    def test_a_machine_that_changes_its_key_is_ended(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.eventually("its key is seen", lambda: self.instance(warm).get("publicKey"))
        machine = self.machines.of(warm)
        machine.key = type(machine.key).generate()
        self.ended(warm, "unhealthy")

    def test_while_github_is_out_deadlines_move_and_nobody_is_ended(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.github.out = True
        key = self.ask("9006")
        claimed = self.eventually("it is claimed", lambda: state_of(now := self.instance(warm)) == "claimed" and now)
        first = claimed["threshold"]
        self.eventually("its deadline was moved on twice", lambda: self.moves(warm, first) >= 2)
        self.assertEqual(state_of(self.instance(warm)), "claimed")
        self.github.out = False
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])

    def moves(self, instance: dict, first: str) -> int:
        """How many later thresholds the claimed machine was given."""
        thresholds = {
            new["threshold"]
            for _, new in self.history.of(records.instance_key(instance["instanceArn"]))
            if new and new["state"] == "claimed"
        }
        return len([threshold for threshold in thresholds if threshold > first])

    def test_in_mode_job_each_registration_serves_one_job_and_the_next_follows(self):
        self.pool(desired=1, max=1, registrationMode="job")
        (warm,) = self.pooled(1)
        key = self.ask("9007")
        self.phase(key, "Ready")
        machine = self.machines.of(warm)
        first = machine.opened["registration"]
        self.assertTrue(first["jitConfig"])
        self.assertNotIn("token", first)
        self.assertIsInstance(first["runnerId"], int)
        # GitHub drops a single-use runner that served its job.
        self.github.runners.pop(first["runnerId"])
        machine.extra = {"registrationDone": first["seq"]}
        held = self.eventually("the next is sealed", lambda: "registration" in (now := self.instance(warm)) and now)
        second = machine.open("registration", held)
        self.assertEqual((second["seq"], held["registrationSeq"]), (first["seq"] + 1, first["seq"] + 1))
        self.assertNotEqual(second["jitConfig"], first["jitConfig"])
        self.assertEqual(REPOSITORY, self.table.get(key)["repository"])
        # Given back before the second runner ever connected: the operator removes it, and the machine is used again.
        self.assertEqual(self.github.runner(second["runnerId"])["name"], second["runnerName"])
        machine.extra |= {"runnerId": second["runnerId"]}
        told = lambda: self.table.get(records.agent_key(warm["instanceArn"])).get("runnerId")  # noqa: E731
        self.eventually("its agent tells the number", lambda: told() == second["runnerId"])
        # And the operator has read that.
        self.settle()
        self.table.release(key)
        self.phase(key, "Released")
        self.assertEqual([item["instanceId"] for item in self.pooled(1)], [warm["instanceId"]])
        self.assertIsNone(self.github.runner(second["runnerId"]))

    def test_a_job_that_may_become_root_is_the_last_of_its_machine_and_the_request_gets_another(self):
        jobs = {"root": True, "containers": "engine", "environment": {"HTTPS_PROXY": "http://proxy.internal:3128"}}
        self.pool(desired=1, max=2, registrationMode="job", reuseWithin="none", jobs=jobs)
        (warm,) = self.pooled(1)
        self.assertNotIn("jobs", warm, "it is granted with a claim")
        key = self.ask("9008")
        self.phase(key, "Ready")
        self.assertEqual(self.instance(warm)["jobs"], jobs)
        machine = self.machines.of(warm)
        machine.extra = {"registrationDone": machine.opened["registration"]["seq"]}
        self.ended(warm, "max-uses")
        replaced = lambda: (now := self.table.get(key))["instances"] not in ([], [warm["instanceId"]])  # noqa: E731
        self.eventually("another machine serves the run", replaced)

    def test_a_class_may_not_lend_a_machine_again_on_which_jobs_become_root(self):
        spec = [{"resourceClass": "root", "max": 1, "registrationMode": "job", "jobs": {"root": True}}]
        file = self.scratch / "root.json"
        file.write_text(json.dumps(spec))
        refused = self.runyard("apply", "-f", str(file), exits=2)
        self.assertIn("pools[0].jobs.root", refused.stderr)
