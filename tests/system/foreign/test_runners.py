"""A runner that waits for its claim (contract 2.9), and the package that comes with a claim (contract 2.12)."""

import records
from history import state_of
from yard import WithGitHub


class Runners(WithGitHub):
    def images(self, instance: dict) -> list[dict]:
        """Every version of a machine's record up to the present one."""
        version = self.instance(instance)["version"]
        seen = lambda: [new for _, new in self.history.of(records.instance_key(instance["instanceArn"])) if new]  # noqa: E731
        self.eventually("the stream shows it", lambda: (all := seen()) and all[-1]["version"] >= version)
        return seen()


class RegisteredAhead(Runners):
    def setUp(self) -> None:
        super().setUp()

        def registers(machine, instance):
            machine.github = self.github

        self.machines.prepare = registers
        self.pool(desired=1, max=1, reuseWithin="repository", repositories=["octo/app"])

    def judge(self) -> None:
        super().judge()
        labels = [machine.opened["ahead"]["labels"][0] for machine in self.machines.machines.values()
                  if "ahead" in machine.opened]
        told = "".join("".join(operator.log) for operator in self.running) + repr(self.history.steps)
        self.assertFalse([label for label in labels if label in told], "the label at rest stands in a record or a log")

    def at_rest(self) -> dict:
        """Waits for a pooled machine whose runner GitHub knows."""
        confirmed = lambda: [i for i in self.instances("idle pooled") if "runnerId" in i.get("ahead", {})]  # noqa: E731
        return self.eventually("a runner rests", confirmed)[0]

    def says(self, on: bool, reasons: list[str]) -> None:
        """Waits until the pool's status says whether it is on, and if not, why."""
        told = lambda: self.table.get(records.pool_key("small")).get("ahead", {})  # noqa: E731
        self.eventually(f"it says {reasons}", lambda: (told().get("on"), told().get("reasons", [])) == (on, reasons))
        self.assertIn("saves" if on else "would save", told()["message"])

    def test_a_class_that_says_nothing_has_its_runners_registered_ahead_where_that_is_possible(self):
        self.says(True, [])
        self.assertNotIn("registeredAhead", self.table.get(records.pool_key("small")), "auto is the absent attribute")
        self.at_rest()
        spec = {"desired": 1, "max": 1, "repositories": ["octo/app"], "keep": [{"name": "npm", "path": "~/.npm"}]}
        self.pool(**spec, reuseWithin="repository", registeredAhead="auto")
        self.says(False, ["Keep"])
        self.pool(**spec, reuseWithin="repository", registeredAhead=False)
        self.says(False, ["Off", "Keep"])
        self.assertIs(self.table.get(records.pool_key("small"))["registeredAhead"], False)
        self.pool(desired=1, max=1, repositories=["octo/app"], reuseWithin="none")
        self.says(False, ["ReuseWithin"])

    def test_the_runner_of_a_pooled_machine_waits_under_a_label_that_nobody_can_name(self):
        warm = self.at_rest()
        box, ahead = self.machines.of(warm).opened["ahead"], warm["ahead"]
        self.assertEqual((box["aheadId"], box["runnerName"]), (ahead["id"], f"runyard-ahead-{ahead['id']}"))
        self.assertNotIn("claimId", box)
        self.assertNotIn("registration", warm)
        self.assertIn("octo/app", warm["trustDomain"])
        (label,) = box["labels"]
        self.assertGreaterEqual(len(label), 22, "128 bits")
        self.assertEqual(self.github.runner(ahead["runnerId"])["labels"][0]["name"], label)

    def test_a_claim_takes_the_runner_with_its_label_and_the_runner_goes_with_the_claim(self):
        warm = self.at_rest()
        key = self.ask("9101")
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
        number = warm["ahead"]["runnerId"]
        self.assertEqual([label["name"] for label in self.github.runner(number)["labels"]], ["9101"])
        claim = self.instance(warm)["claimId"]
        own = [image for image in self.images(warm) if image["claimId"] == claim]
        self.assertEqual({state_of(image) for image in own}, {"claimed", "running"})
        self.assertFalse([image for image in own if "registration" in image], "it needs no box")
        self.assertTrue(all(image["ahead"] == warm["ahead"] for image in own))
        told = lambda: self.table.get(records.agent_key(warm["instanceArn"])).get("runnerId")  # noqa: E731
        self.eventually("its agent tells the number", lambda: told() == number)
        self.table.release(key)
        self.phase(key, "Released")
        self.assertIsNone(self.github.runner(number))
        again = self.at_rest()
        self.assertEqual(again["instanceId"], warm["instanceId"])
        self.assertNotEqual(again["ahead"], warm["ahead"])

    def test_a_label_that_is_refused_leads_to_a_registration_within_the_same_claim(self):
        warm = self.at_rest()
        self.github.labels_out = True
        key = self.ask("9102")
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
        held, machine = self.instance(warm), self.machines.of(warm)
        self.assertIsNone(self.github.runner(warm["ahead"]["runnerId"]), "no other may have the label of the run")
        self.assertNotIn("ahead", held)
        self.assertEqual(machine.opened["registration"]["claimId"], held["claimId"])
        self.assertEqual(machine.opened["registration"]["labels"], ["9102"])
        self.assertEqual({i["claimId"] for i in self.images(warm) if i["runId"]}, {held["claimId"]})

    def test_an_agent_that_lost_the_runner_gets_a_box_and_that_runner_no_label(self):
        warm = self.at_rest()
        machine, number = self.machines.of(warm), warm["ahead"]["runnerId"]
        # Between the claim and the label: GitHub does not answer meanwhile.
        self.github.out = True
        key = self.ask("9103")
        self.eventually("it is claimed", lambda: state_of(self.instance(warm)) == "claimed")
        machine.github = machine.resting = None
        shown = lambda: "ahead" in self.table.get(records.agent_key(warm["instanceArn"]))  # noqa: E731
        self.eventually("its agent says so", lambda: not shown())
        # And the operator has read that.
        self.settle()
        self.github.out = False
        self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
        self.assertIsNone(self.github.runner(number))
        self.assertNotIn(number, self.github.labelled)
        self.assertEqual(machine.opened["registration"]["labels"], ["9103"])

    def test_a_class_that_registers_nobody_ahead_any_more_gives_the_runner_up(self):
        warm = self.at_rest()
        self.pool(desired=1, max=1, reuseWithin="repository", repositories=["octo/app"], registeredAhead=False)
        self.eventually("its record names none", lambda: "ahead" not in self.instance(warm))
        self.assertIsNone(self.github.runner(warm["ahead"]["runnerId"]))
        gone = lambda: "ahead" not in self.table.get(records.agent_key(warm["instanceArn"]))  # noqa: E731
        self.eventually("its agent has none", gone)
        self.assertEqual(state_of(self.instance(warm)), "idle pooled")


PINNED = {"version": "2.330.0", "url": "https://github.com/actions/runner/releases/download/v2.330.0/x.tar.gz", "sha256": "0a" * 32}


class Packages(Runners):
    packages = {
        "runner_url": PINNED["url"],
        "runner_sha256": PINNED["sha256"],
        "runner_version": PINNED["version"],
        "runner_follow": "latest",
    }

    def claimed_with(self, instance: dict) -> list[dict]:
        """The packages that the records of a machine's present claim have named so far."""
        claim = self.instance(instance)["claimId"]
        named: list[dict] = []
        for image in self.images(instance):
            if image["claimId"] == claim and "pooledAt" not in image and image.get("runner") not in named:
                named.append(image.get("runner"))
        return named

    def test_a_claim_names_its_package_to_its_end_and_the_pool_the_next_ones(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        self.assertEqual(warm["runner"], PINNED)
        key = self.ask("9201")
        self.phase(key, "Ready")
        self.assertEqual(self.instance(warm)["runner"], PINNED)
        self.table.release(key)
        self.phase(key, "Released")
        self.assertEqual(self.claimed_with(warm), [PINNED])
        self.assertEqual(self.pooled(1)[0]["runner"], PINNED)

    def test_an_agent_that_cannot_run_the_package_says_so_and_the_request_takes_another_machine(self):
        self.pool(desired=1, max=2)
        (warm,) = self.pooled(1)
        self.machines.of(warm).registers = "failed"
        self.machines.of(warm).extra = {"signalDetail": "runner.sha256: the package has another digest"}
        key = self.ask("9202")
        self.assertNotEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
        self.assertTrue([image for image in self.images(warm) if image.get("registrationFailures") == 1])

    def test_a_newer_version_of_githubs_list_comes_with_claims_and_no_machine_is_replaced(self):
        newer = {"version": "2.331.0", "url": PINNED["url"].replace("2.330.0", "2.331.0"), "sha256": "0b" * 32}
        self.github.packages = [
            {
                "os": "linux",
                "architecture": "x64",
                "download_url": newer["url"],
                "filename": "actions-runner-linux-x64-2.331.0.tar.gz",
                "sha256_checksum": newer["sha256"],
                "temp_download_token": "none",
            }
        ]
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        first = self.ask("9203")
        self.phase(first, "Ready")
        # GitHub is asked once a day, and by whoever leads anew. A claim keeps what it has meanwhile.
        self.operator.end()
        self.start_operator()
        tried = lambda: self.table.get(records.pool_key("small")).get("runner", {}).get("trial")  # noqa: E731
        self.eventually("the class tries it", tried)
        self.settle()
        self.assertEqual(self.claimed_with(warm), [PINNED])
        self.table.release(first)
        self.phase(first, "Released")
        for run in ("9204", "9205", "9206"):
            key = self.ask(run)
            self.assertEqual(self.phase(key, "Ready")["instances"], [warm["instanceId"]])
            self.assertEqual(self.claimed_with(warm), [newer])
            self.table.release(key)
            self.phase(key, "Released")
        adopted = lambda: self.table.get(records.pool_key("small"))["runner"].get("adopted")  # noqa: E731
        self.assertEqual(self.eventually("the class adopts it", adopted), newer)


class NotVerified(Runners):
    """What an agent leaves to the operator is removed, though nobody looks after what agents removed themselves."""

    def prepare(self) -> None:
        super().prepare()
        self.github_settings |= {"verify_removed": False}

    def test_a_runner_whose_number_its_agent_tells_is_gone_before_its_machine_is_pooled(self):
        self.pool(desired=1, max=1)
        (warm,) = self.pooled(1)
        key = self.ask("9012")
        self.phase(key, "Ready")
        machine = self.machines.of(warm)
        number = self.github.register(machine.opened["registration"]["runnerName"], ["9012"])
        machine.extra = {"runnerId": number}
        told = lambda: self.table.get(records.agent_key(warm["instanceArn"])).get("runnerId")  # noqa: E731
        self.eventually("its agent tells the number", lambda: told() == number)
        # And the operator has read that.
        self.settle()
        self.table.release(key)
        self.phase(key, "Released")
        self.pooled(1)
        self.assertIsNone(self.github.runner(number))
