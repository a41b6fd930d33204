"""The client's machines with GitHub: they open their credentials, real jobs run on them, and their runners go."""

import base64
import hashlib
import json
import tempfile
import unittest
import urllib.request
from pathlib import Path

import place
import workflow
from agent import Failed
from nacl.public import PrivateKey, PublicKey, SealedBox
from place import until
from runner import Runner

yard: place.Yard
REPOSITORY = "demo/github"


def setUpModule() -> None:
    global yard
    yard = place.Yard(place.commands()[2])


def tearDownModule() -> None:
    yard.end()


class Jobs(unittest.TestCase):
    def github(self, path: str, body=None):
        """One call of the stand-in GitHub."""
        address = f"http://127.0.0.1:{(yard.dir / 'github/api.port').read_text().strip()}{path}"
        token = (yard.dir / "github/github-token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(address, data, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=place.WITHIN) as answer:
            return json.load(answer)

    def runs(self, run_id: int, step: str) -> tuple[dict, dict, dict]:
        """Runs a job on a machine; its request, and its machine and agent meanwhile."""
        asked = workflow.provision(yard.table, REPOSITORY, str(run_id), "small")
        ready = workflow.wait(yard.table, asked)
        (machine,) = ready["instances"]
        instance, said = yard.instance(machine), yard.agent(machine)
        job = {"name": "job", "runs_on": [workflow.label(ready)], "steps": [step]}
        self.github("/_workflow/runs", {"repository": REPOSITORY, "run_id": run_id, "jobs": [job], "open": True})

        def over():
            (job,) = self.github(f"/_workflow/runs/{run_id}")["jobs"]
            return job["status"] == "completed" and job

        self.assertEqual(until("the job", over)["conclusion"], "success")
        return ready, instance, said

    def runners(self) -> list[dict]:
        return self.github(f"/repos/{REPOSITORY}/actions/runners")["runners"]

    def test_jobs_of_two_runs_run_on_one_machine_each_by_a_runner_of_its_own(self):
        result = yard.scratch / "result"
        ready, first, said = self.runs(501, f'echo "one for $GITHUB_RUN_ID" >{result}')
        self.assertEqual(result.read_text(), "one for 501\n")
        self.assertNotIn("registration", first)
        self.assertEqual(first["publicKey"], said["publicKey"])
        (runner,) = self.runners()
        self.assertEqual((runner["id"], runner["name"]), (said["runnerId"], f"runyard-{first['claimId']}"))
        self.assertEqual([one["name"] for one in runner["labels"] if one["type"] == "custom"], ["501"])
        workflow.release(yard.table, ready)
        workflow.wait(yard.table, ready, "Released")
        machine = first["instanceId"]
        until("the machine in the pool", lambda: yard.instance(machine).get("pooledAt"))
        self.assertEqual(self.runners(), [], "its runner was left at GitHub")

        again, second, later = self.runs(502, f'echo "one for $GITHUB_RUN_ID" >{result}; env >{result}.environment')
        self.assertEqual((again["instances"], second["uses"]), ([machine], 2))
        self.assertNotEqual(later["runnerId"], said["runnerId"])
        self.assertEqual(result.read_text(), "one for 502\n")
        given = result.with_name("result.environment").read_text()
        self.assertIn("GITHUB_RUN_ID=502", given)
        self.assertNotIn(yard.environment["AWS_ACCESS_KEY_ID"], given, "a job can write to the table")
        workflow.release(yard.table, again)
        workflow.wait(yard.table, again, "Released")


class Credentials(unittest.TestCase):
    def setUp(self) -> None:
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def runner(self, content: bytes = b"a package", digest: str = "") -> Runner:
        package = self.scratch / "package"
        package.write_bytes(content)
        named = {"url": package.as_uri(), "sha256": digest or hashlib.sha256(content).hexdigest()}
        return Runner({"runner": named, "work_dir": str(self.scratch), "timing": {"stop": "60s"}})

    def test_only_the_box_of_this_claim_that_its_own_key_opens_is_used(self):
        runner = self.runner()
        own = PublicKey(base64.b64decode(runner.attributes()["publicKey"]))

        def sealed(key: PublicKey, content) -> str:
            return base64.b64encode(SealedBox(key).encrypt(json.dumps(content).encode())).decode()

        for registration, used in (
            (sealed(own, {"claimId": "c1", "token": "t"}), True),
            (sealed(own, {"claimId": "c0", "token": "t"}), False),
            (sealed(own, {"aheadId": "c1", "token": "t"}), False),
            (sealed(PrivateKey.generate().public_key, {"claimId": "c1", "token": "t"}), False),
            ("no base64", False),
            ("", False),
        ):
            self.assertEqual(runner.can_register({"claimId": "c1", "registration": registration}), used, registration)
        self.assertFalse(runner.can_register({"claimId": "c1"}))
        self.assertEqual(runner.box["claimId"], "c1")

    def test_a_package_with_another_digest_is_no_boot(self):
        self.runner().boot()
        with self.assertRaisesRegex(Failed, "has another SHA-256 than 0{64}"):
            self.runner(digest="0" * 64).boot()
        with self.assertRaisesRegex(Failed, "nowhere"):
            missing = self.runner()
            missing.package["url"] = "file:///nowhere"
            missing.boot()

    def test_a_claim_without_a_token_is_refused_and_has_no_number(self):
        runner = self.runner()
        runner.number, runner.box = 7, {"claimId": "c1", "jitConfig": "x"}
        with self.assertRaisesRegex(Failed, "registrationMode run"):
            runner.register({"claimId": "c1", "runId": "9"})
        self.assertNotIn("runnerId", runner.attributes())


if __name__ == "__main__":
    unittest.main()
