"""The command line and the admin port: what they answer, and with which exit code."""

import json
import os

import records
from yard import REPOSITORY, Scenario, request_of


class Commands(Scenario):
    def provision(
        self, run_id: str, *more: str, exits: int = 0, resource_class: str = "small", count: int = 1, **environment
    ):
        return self.runyard(
            "provision",
            "--run-id",
            run_id,
            "--repository",
            REPOSITORY,
            "--class",
            resource_class,
            "--count",
            str(count),
            *more,
            exits=exits,
            **environment,
        )

    def release(self, run_id: str, *more: str, exits: int = 0):
        return self.runyard("release", "--run-id", run_id, "--repository", REPOSITORY, *more, exits=exits)

    def test_provision_waits_until_ready_and_release_until_released(self):
        self.pool()
        output = self.scratch / "output"
        output.touch()
        self.provision("8001", "--wait", count=2, GITHUB_OUTPUT=str(output))
        record = self.table.get(request_of("8001"))
        self.assertEqual(record["phase"], "Ready")
        said = dict(line.split("=", 1) for line in output.read_text().splitlines() if "=" in line)
        self.assertEqual((said["label"], said["phase"]), ("8001", "Ready"))
        self.assertEqual(sorted(json.loads(said["instances"])), sorted(record["instances"]))
        records.time_of(said["ready-at"])
        self.release("8001", "--wait")
        self.assertEqual(self.table.get(request_of("8001"))["phase"], "Released")

    def test_in_a_workflow_the_run_is_known_from_its_environment(self):
        self.pool()
        workflow = {"GITHUB_RUN_ID": "8002", "GITHUB_RUN_ATTEMPT": "3", "GITHUB_REPOSITORY": REPOSITORY}
        self.runyard("provision", "--class", "small", "--count", "1", "--wait", **workflow)
        self.assertEqual(self.table.get(request_of("8002", attempt=3))["phase"], "Ready")
        self.runyard("release", "--wait", **workflow)
        self.assertEqual(self.table.get(request_of("8002", attempt=3))["phase"], "Released")

    def test_the_same_intent_again_is_the_same_request(self):
        self.pool()
        self.provision("8003", "--wait", count=2)
        before = self.table.get(request_of("8003"))
        self.provision("8003", "--wait", count=2)
        after = self.table.get(request_of("8003"))
        self.assertEqual((after["generation"], after["instances"]), (1, before["instances"]))

    def test_another_intent_under_the_same_key_is_refused_with_both_shown(self):
        self.pool()
        self.provision("8004", count=2)
        refused = self.provision("8004", count=4, exits=1)
        self.assertIn("2", refused.stderr)
        self.assertIn("4", refused.stderr)
        self.assertEqual(self.table.get(request_of("8004"))["count"], 2)

    def test_what_is_over_cannot_be_asked_for_again_under_its_key(self):
        self.pool()
        self.provision("8005", "--wait")
        self.release("8005", "--wait")
        refused = self.provision("8005", exits=1)
        self.assertRegex(refused.stderr, "another name|new attempt")

    def test_releasing_twice_or_nothing_is_done_and_says_so(self):
        self.pool()
        self.provision("8006", "--wait")
        self.release("8006", "--wait")
        self.assertTrue(self.release("8006").stdout.strip())
        self.assertTrue(self.release("never-asked-for").stdout.strip())

    def test_releasing_what_failed_is_done(self):
        self.provision("8007", "--wait", resource_class="nowhere", exits=3)
        self.release("8007", "--wait")
        self.assertEqual(self.table.get(request_of("8007"))["phase"], "Failed")

    def test_a_failed_request_is_exit_code_three_with_its_reason(self):
        failed = self.provision("8008", "--wait", resource_class="nowhere", exits=3)
        self.assertIn("nowhere", failed.stderr + failed.stdout)

    def test_a_wait_that_times_out_is_exit_code_four(self):
        self.pool()
        self.provision("8009", "--wait")
        self.operator.end()
        self.release("8009", "--wait", "--timeout", "1s", exits=4)

    def test_wrong_usage_is_exit_code_two_and_needs_no_network(self):
        nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}
        self.runyard("provision", exits=2, **nowhere)
        self.runyard("no-such-verb", exits=2, **nowhere)
        self.provision("8010", count=0, exits=2, **nowhere)
        self.provision("8010", count=501, exits=2, **nowhere)
        self.provision("8010/../x", exits=2, **nowhere)
        self.provision("8010", resource_class="Not A Class", exits=2, **nowhere)
        self.provision("8010", "--min-count", "2", count=1, exits=2, **nowhere)
        self.provision("8010", "--attempt", "0", exits=2, **nowhere)

    def test_an_error_as_json_names_field_value_message_and_fix(self):
        self.pool()
        self.provision("8011", count=2)
        refused = self.provision("8011", "-o", "json", count=3, exits=1)
        error = json.loads(refused.stderr.strip().splitlines()[-1])["error"]
        self.assertLessEqual({"field", "value", "message", "fix"}, set(error))

    def test_lists_are_items_and_one_record_is_an_object_with_the_pages_names(self):
        self.pool(desired=1)
        self.pooled(1)
        self.provision("8012", "--wait")
        for kind, must in (
            ("instances", {"instanceId", "state", "runId", "claimId", "threshold", "resourceClass"}),
            ("requests", {"runId", "repository", "phase", "count", "desired", "instances"}),
            ("pools", {"resourceClass", "desired", "max"}),
            ("launches", {"launchId", "attempt", "clientToken", "phase"}),
        ):
            listed = self.read("get", kind)
            self.assertEqual(set(listed), {"items"}, kind)
            self.assertTrue(listed["items"], kind)
            for item in listed["items"]:
                self.assertLessEqual(must, set(item), kind)
                self.assertFalse({"pk", "sk"} & set(item), kind)
        (held,) = self.holders(request_of("8012"))
        one = self.read("describe", "instance", held["instanceId"])
        self.assertEqual((one["instanceId"], one["state"]), (held["instanceId"], "running"))
        self.assertEqual(self.read("describe", "request", "8012")["phase"], "Ready")
        self.assertEqual(self.read("describe", "pool", "small")["resourceClass"], "small")

    def test_what_happened_can_be_read_as_events(self):
        self.pool()
        self.provision("8013", "--wait")
        stored = self.eventually("events are written", lambda: self.table.all("event"))
        for event in stored:
            self.assertTrue(event["sk"].startswith("event#"))
            self.assertIn(event["type"], ("Normal", "Warning"))
            records.time_of(event["at"])
            for name in ("reason", "message", "actor", "subject", "expiresAt"):
                self.assertTrue(event.get(name), name)
        self.eventually(
            "the move to running is told",
            lambda: [one for one in self.read("events")["items"] if one.get("to") == "running"],
        )

    def test_scale_overrides_and_apply_leaves_the_override_alone(self):
        self.pool(desired=0, max=4)
        self.runyard("scale", "small", "--desired", "2")
        self.pooled(2)
        override = self.table.get(records.pool_key("small"))["override"]
        self.assertEqual(override["desired"], 2)
        self.pool(desired=0, max=5)
        record = self.table.get(records.pool_key("small"))
        self.assertEqual((record["override"], record["max"]), (override, 5))
        self.runyard("scale", "small", "--reset")
        self.assertNotIn("override", self.table.get(records.pool_key("small")))

    def test_a_pool_that_wants_more_than_it_may_have_is_refused(self):
        file = self.scratch / "bad.json"
        file.write_text(
            json.dumps({"pools": [{"resourceClass": "small", "cpu": 2, "mmem": 4096, "desired": 5, "max": 2}]})
        )
        done = self.runyard("apply", "-f", str(file), exits=2)
        self.assertIn("desired", done.stderr)
        self.assertIsNone(self.table.get(records.pool_key("small")))

    def test_pools_may_be_written_as_yaml(self):
        file = self.scratch / "pools.yaml"
        file.write_text(
            "pools:\n"
            "  - resourceClass: small\n    cpu: 2\n    mmem: 4096\n    max: 3\n"
            "  - {resourceClass: big, cpu: 8, mmem: 16384, max: 1}\n"
        )
        self.runyard("apply", "-f", str(file))
        self.assertEqual(self.table.get(records.pool_key("big"))["mmem"], 16384)
        self.phase(self.ask("8014", resource_class="big"), "Ready")

    def test_a_class_that_names_its_image_by_a_parameter_is_launched_once_that_is_pinned(self):
        parameter = "/aws/service/debian/release/13/latest/amd64"
        launch = {"ami": f"ssm:{parameter}", "tags": {"CostCenter": "4711"}, "volume": {"gib": 30, "encrypted": True}}
        self.pool(desired=1, max=1, launch=launch)
        (machine,) = self.pooled(1)
        record = self.table.get(records.pool_key("small"))
        self.assertEqual(record["launch"], launch)
        image = record["image"]
        self.assertEqual((image["parameter"], set(image)), (parameter, {"parameter", "ami", "resolvedAt"}))
        self.assertLessEqual(records.time_of(image["resolvedAt"]), records.time_of(machine["createdAt"]))

    def test_a_person_can_expire_an_idle_machine_but_a_busy_one_only_with_now(self):
        self.pool(desired=1, max=2)
        (idle,) = self.pooled(1)
        self.provision("8015", "--wait")
        (busy,) = self.holders(request_of("8015"))
        self.runyard("expire", busy["instanceId"], exits=1)
        self.assertEqual(self.instance(busy)["state"], "running")
        self.runyard("expire", busy["instanceId"], "--now", exits=1)
        self.assertEqual(self.instance(busy)["state"], "running")
        self.runyard("expire", busy["instanceId"], "--now", "--yes")
        self.ended(busy, "expired", "threshold")
        # The request takes another machine in its place, perhaps the spare one; one more is then kept ahead.
        self.eventually("the request has another machine", lambda: self.holders(request_of("8015")))
        self.release("8015")
        self.phase(request_of("8015"), "Released")
        spare = self.eventually("one is idle", lambda: self.instances("idle pooled"))[0]
        self.runyard("expire", spare["instanceId"])
        self.ended(spare, "expired", "threshold")
        self.assertTrue(idle)

    def test_a_person_can_fail_a_stuck_request(self):
        self.machines.prepare = lambda machine, instance: setattr(machine, "registers", "silent")
        self.pool(max=1)
        key = self.ask("8016")
        self.eventually("it holds one", lambda: self.table.get(key).get("instances"))
        self.runyard("fail", "8016", exits=1)
        self.runyard("fail", "8016", "--yes")
        self.phase(key, "Failed")
        self.pooled(1)

    def test_init_again_changes_nothing_and_a_table_of_another_shape_is_refused(self):
        self.runyard("init")
        other = f"{self.table_name}-other"
        self.dynamodb.create_table(
            TableName=other,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        self.addCleanup(self.dynamodb.delete_table, TableName=other)
        before = self.dynamodb.describe_table(TableName=other)["Table"]["KeySchema"]
        self.runyard("init", exits=1, RUNYARD_TABLE=other)
        self.assertEqual(self.dynamodb.describe_table(TableName=other)["Table"]["KeySchema"], before)

    def test_a_dry_run_of_init_creates_nothing(self):
        name = f"{self.table_name}-dry"
        self.runyard("init", "--dry-run", RUNYARD_TABLE=name)
        self.assertNotIn(name, self.dynamodb.list_tables()["TableNames"])


class AdminPort(Scenario):
    def test_it_is_alive_ready_and_measured(self):
        self.assertEqual(self.operator.get("/livez")[0], 200)
        self.eventually("it is ready", lambda: self.operator.get("/readyz")[0] == 200)
        self.pool(desired=1, max=2)
        self.pooled(1)
        self.phase(self.ask("8101"), "Ready")
        self.eventually(
            "the yard is counted", lambda: "# TYPE runyard_instances " in self.operator.get("/metrics")[1]
        )
        text = self.operator.get("/metrics")[1]
        for name in (
            "runyard_instances",
            "runyard_pool_desired",
            "runyard_pool_max",
            "runyard_pool_paused",
            "runyard_requests",
            "runyard_request_ready_seconds",
            "runyard_transitions_total",
            "runyard_terminations_total",
            "runyard_reconcile_seconds",
            "runyard_backend_requests_total",
            "runyard_backend_request_seconds",
            "runyard_unreadable_records",
            "runyard_leader",
        ):
            self.assertIn(f"# TYPE {name} ", text)
        at = lambda state: self.operator.metric("runyard_instances", resource_class="small", state=state)  # noqa: E731
        self.eventually("one is counted running", lambda: at("running") == 1)
        self.assertGreaterEqual(self.operator.metric("runyard_request_ready_seconds_count", source="warm"), 1)
        self.assertGreaterEqual(
            self.operator.metric("runyard_transitions_total", **{"from": "claimed", "to": "running"}), 1
        )
        foreign = [line.split("{")[0].split()[0] for line in text.splitlines() if line and not line.startswith("#")]
        self.assertFalse([name for name in foreign if not name.startswith(("runyard_", "process_"))])
        self.assertNotIn(REPOSITORY, text, "an unbounded label")

    def test_every_key_can_be_set_by_the_environment(self):
        self.environment |= {"RUNYARD_TIMING__CREATED": "3s"}
        self.start_operator()
        self.running[0].end()
        self.machines.prepare = lambda machine, instance: setattr(machine, "boots", "silent")
        self.pool(desired=1, max=1)
        (born,) = self.eventually("one is created", lambda: self.instances("created"))
        self.ended(born, "threshold")

    def test_a_key_nobody_knows_stops_the_operator_with_its_path(self):
        config = self.scratch / "wrong.toml"
        config.write_text('[timing]\nresink = "1s"\n[admin]\nlisten = "127.0.0.1:0"\n')
        done = self.runyard("operator", "--config", os.fspath(config), exits=2)
        self.assertIn("resink", done.stderr)
