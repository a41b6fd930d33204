"""The client's workflow and its agents beside the shipped operator: a machine is asked for, lent, given back, lent again."""

import re
import signal
import subprocess
import sys
import unittest

import place
import table
import verbs
import workflow
from place import until
from table import encode
from workflow import Conflict, RequestFailed

yard: place.Yard


def setUpModule() -> None:
    global yard
    yard = place.Yard()


def tearDownModule() -> None:
    yard.end()


class Cycle(unittest.TestCase):
    def lent(self, repository: str, run_id: str, count: int = 1, **wishes) -> dict:
        """A request that has its machines."""
        return workflow.wait(yard.table, workflow.provision(yard.table, repository, run_id, "small", count, **wishes))

    def given_back(self, request: dict) -> dict:
        workflow.release(yard.table, request)
        return workflow.wait(yard.table, request, "Released")

    def test_the_second_command_of_its_page_borrows_works_and_gives_back(self):
        done = verbs.run(yard.bash(place.commands()[1]), cwd=place.ROOT, env=yard.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (shown,) = re.findall(r"^```text\n(.*?)^```$", (place.CLIENT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        said = done.stdout.splitlines()
        # What comes between depends on how soon the machines are there.
        sure = [line for line in shown.splitlines() if re.match("Ready|runs-on|jobs|Released", line)]
        self.assertEqual([line for line in said if line in sure], sure, done.stdout)
        self.assertEqual(len(said[said.index("runs-on    1") + 1].split()), 3, done.stdout)

    def test_a_machine_is_asked_for_lent_given_back_and_lent_again(self):
        ready = self.lent("demo/cycle", "101")
        (machine,) = ready["instances"]
        self.assertEqual(workflow.label(ready), "101")
        first = yard.instance(machine)
        shown = (first["state"], first["runId"], first["uses"], first["request"])
        self.assertEqual(shown, ("running", "101", 1, {"pk": ready["pk"], "sk": ready["sk"]}))
        said = yard.agent(machine)
        self.assertEqual((said["signal"], said["signalClaimId"]), ("UD_REG_OK", first["claimId"]))
        over = self.given_back(ready)
        self.assertEqual((over["instances"], over["served"]), ([], [machine]))
        pooled = until("the machine in the pool", lambda: (now := yard.instance(machine)).get("pooledAt") and now)
        self.assertEqual((pooled["state"], pooled["runId"], pooled["claimId"]), ("idle", "", first["claimId"]))

        again = self.lent("demo/cycle", "102")
        self.assertEqual(again["instances"], [machine])
        second = yard.instance(machine)
        self.assertEqual((second["runId"], second["uses"]), ("102", 2))
        self.assertNotEqual(second["claimId"], first["claimId"])
        steps = [line for line in yard.printed(machine) if line.startswith(("boots", "registers", "stops", "cleans"))]
        self.assertEqual(steps, [
            "boots",
            f"registers for {first['claimId']} of run 101",
            f"stops {first['claimId']}",
            f"cleans after {first['claimId']}",
            f"registers for {second['claimId']} of run 102",
        ])
        self.given_back(again)

    def test_more_machines_are_asked_for_while_the_operator_writes_the_same_record(self):
        ready = self.lent("demo/more", "111", secret_label=True)
        self.assertRegex(workflow.label(ready), r"^111-[a-z0-9]{8}$")
        self.assertEqual(workflow.public_label(ready), "111-********")
        raised = workflow.raise_count(yard.table, ready, 2)
        self.assertEqual((raised["count"], raised["generation"]), (2, 2))
        both = until("both", lambda: len((now := workflow.read(yard.table, ready))["instances"]) == 2 and now)
        self.assertEqual(both["accepted"]["count"], 2)
        self.given_back(ready)
        with self.assertRaisesRegex(Conflict, "count cannot be raised"):
            workflow.raise_count(yard.table, ready, 3)

    def test_a_refusal_and_a_request_that_is_over_are_told_with_the_contracts_exit_codes(self):
        def said(*arguments: str) -> tuple[int, str]:
            done = verbs.run(yard.workflow("--repository", "demo/no", "--run-id", "121", *arguments), env=yard.environment)
            return done.returncode, done.stderr

        code, error = said("--class", "none")
        self.assertEqual(code, 3)
        self.assertRegex(error, "^error: Failed: UnknownClass: .*none")
        code, error = said("--class", "none")
        self.assertEqual(code, 1)
        self.assertRegex(error, "is Failed: use another name or a new attempt")

    def test_a_workflow_that_is_ended_gives_its_machines_back(self):
        arguments = ("--repository", "demo/ended", "--run-id", "131", "--class", "small", "sleep", str(place.WITHIN))
        with subprocess.Popen(yard.workflow(*arguments), env=yard.environment, stdout=subprocess.PIPE, text=True) as ended:
            until("its machine", lambda: ended.stdout.readline().startswith("machines"))
            ended.send_signal(signal.SIGTERM)
            self.assertEqual(ended.wait(place.WITHIN), 128 + signal.SIGTERM)
        record = yard.table.get(*workflow.key_of("demo/ended", "131"))
        self.assertEqual(record["desired"], "released")
        workflow.wait(yard.table, record, "Released")

    def test_a_write_without_its_condition_replaces_a_request_and_its_client_notices(self):
        ours = self.lent("demo/careless", "141")
        (machine,) = ours["instances"]
        claim = yard.instance(machine)["claimId"]
        theirs = {name: ours[name] for name in ("pk", "sk", "kind", "runId", "attempt", "repository", "name", "resourceClass")}
        theirs |= {"uid": "careless", "version": 1, "generation": 1, "count": 1, "desired": "provisioned"}
        theirs |= {"createdAt": table.now(), "updatedAt": table.now()}
        yard.by_hand.append(f"{ours['pk']} {ours['sk']}:")
        yard.table.call("PutItem", {"Item": {name: encode(value) for name, value in theirs.items()}})

        for late in (workflow.release, workflow.read, lambda *known: workflow.raise_count(*known, 2)):
            with self.assertRaisesRegex(Conflict, "replaced by another writer"):
                late(yard.table, ours)
        # The release of the former request is none of this one.
        served = workflow.wait(yard.table, theirs)
        self.assertEqual((served["uid"], served["desired"], served["count"]), ("careless", "provisioned", 1))
        until("the former claim's end", lambda: yard.instance(machine)["claimId"] != claim or not yard.instance(machine)["runId"])
        self.given_back(theirs)

    def test_a_machine_that_a_person_holds_is_stopped_and_not_cleaned(self):
        ready = self.lent("demo/held", "151")
        (machine,) = ready["instances"]
        claim = yard.instance(machine)["claimId"]
        yard.runyard("hold", machine, "--for", "1h")
        over = self.given_back(ready)
        self.assertEqual(over["instances"], [])
        until("its runner's end", lambda: f"stops {claim}" in yard.printed(machine))
        said = yard.agent(machine)
        beat = said["heartbeatSeq"]
        until("another heartbeat", lambda: yard.agent(machine)["heartbeatSeq"] > beat)
        self.assertEqual((yard.agent(machine)["signal"], said["signalClaimId"]), ("UD_REG_OK", claim))
        self.assertNotIn(f"cleans after {claim}", yard.printed(machine))
        yard.runyard("release-hold", machine)
        until("its end", lambda: yard.instance(machine).get("reason") == "expired")


class Asking(unittest.TestCase):
    """On a table that no operator looks at: what is stored is what the client wrote."""

    def setUp(self) -> None:
        self.table = yard.scratch_table()

    def ask(self, count: int = 2, **more) -> dict:
        return workflow.provision(self.table, more.pop("repository", "acme/web"), "1234567890", "linux-x64", count, **more)

    def stored(self, record: dict, *without: str) -> dict:
        key = {name: encode(record[name]) for name in ("pk", "sk")}
        item = self.table.call("GetItem", {"Key": key, "ConsistentRead": True})["Item"]
        return {name: value for name, value in item.items() if name not in without}

    def test_a_new_request_is_the_golden_one(self):
        asked = self.ask()
        self.assertEqual(self.stored(asked, "uid", "createdAt", "updatedAt"), place.golden("request-new"))
        for attribute in ("createdAt", "updatedAt"):
            self.assertRegex(asked[attribute], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertRegex(asked["uid"], "^[!-~]{1,128}$")

    def test_each_wish_has_the_form_of_the_golden_request(self):
        served = place.golden("request-served")
        names = ("minCount", "usageClass", "onDemandFallback", "allowedInstanceTypes", "maxRuntimeMinutes",
                 "timeoutSeconds", "priority")
        wishes = {name: table.decode(served[name]) for name in names}
        stored = self.stored(self.ask(3, name="build", secret_label=True, **wishes))
        same = ("attempt", "count", "kind", "name", "pk", "repository", "resourceClass", "runId", "sk", *names)
        self.assertEqual({name: stored[name] for name in same}, {name: served[name] for name in same})
        self.assertEqual({name: list(value) for name, value in stored.items()},
                         {name: list(served[name]) for name in stored})
        self.assertRegex(stored["labelSuffix"]["S"], "^[a-z0-9]{8}$")

    def test_a_release_changes_what_the_golden_release_changed(self):
        asked = workflow.provision(self.table, "acme/web", "1234567891", "linux-x64", 2, trial=True)
        released = workflow.release(self.table, asked)
        self.assertEqual(released["version"], 2)
        once = workflow.release(self.table, asked)
        self.assertEqual(once, released, "a second release changed something")
        operators = {"expiresAt", "instances", "message", "observedGeneration", "phase", "updatedAt", "version"}
        wanted = {name: value for name, value in place.golden("request-released-early").items() if name not in operators}
        self.assertEqual(self.stored(asked, "uid", "createdAt", "updatedAt", "version"), wanted)

    def test_the_same_intent_is_the_same_request_and_another_is_refused(self):
        first = self.ask(timeoutSeconds=600)
        again = self.ask(repository="ACME/Web", minCount=2)
        self.assertEqual(again, first)
        with self.assertRaisesRegex(Conflict, "count is 2, requested 3"):
            self.ask(3)
        with self.assertRaisesRegex(Conflict, "usageClass is None, requested 'spot'"):
            self.ask(usageClass="spot")
        with self.assertRaisesRegex(Conflict, "no secret label"):
            self.ask(secret_label=True)
        self.assertEqual(self.table.get(first["pk"], first["sk"]), first)
        workflow.release(self.table, first)
        with self.assertRaisesRegex(Conflict, "released: use another name"):
            self.ask()
        secret = self.ask(name="secret", secret_label=True)
        self.assertEqual(workflow.label(self.ask(name="secret")), workflow.label(secret))

    def test_a_write_on_a_stale_version_is_refused_and_made_anew(self):
        asked = self.ask()
        late = Late(self.table, lambda: self.table.update(
            asked["pk"], asked["sk"], {"version": 1}, {"x-team": {"a": [1, True]}, "updatedAt": table.now()}, {"version": 1}
        ))
        raised = workflow.raise_count(late, asked, 5)
        self.assertEqual(late.refused, 1)
        shown = (raised["count"], raised["version"], raised["generation"], raised["x-team"])
        self.assertEqual(shown, (5, 3, 2, {"a": [1, True]}))

    def test_more_machines_are_not_asked_for_by_a_client_that_comes_after_the_release(self):
        asked = self.ask()
        late = Late(self.table, lambda: workflow.release(self.table, asked))
        with self.assertRaisesRegex(Conflict, "count cannot be raised"):
            workflow.raise_count(late, asked, 5)
        self.assertEqual(self.table.get(asked["pk"], asked["sk"])["count"], 2)

    def test_a_record_of_a_newer_schema_is_left_alone(self):
        asked = self.ask()
        self.table.update(asked["pk"], asked["sk"], {"version": 1}, {"schema": 2}, {"version": 1})
        for late in (workflow.read, lambda *known: workflow.raise_count(*known, 5)):
            with self.assertRaisesRegex(table.NewerSchema, "has schema 2"):
                late(self.table, asked)


class Late:
    """A table, for a client between whose first read and first write somebody else writes."""

    def __init__(self, behind: table.Table, meanwhile):
        self.behind, self.meanwhile, self.refused = behind, meanwhile, 0

    def get(self, *key):
        record = self.behind.get(*key)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return record

    def update(self, *given):
        try:
            self.behind.update(*given)
        except table.ConditionFailed:
            self.refused += 1
            raise


if __name__ == "__main__":
    sys.exit(unittest.main())
