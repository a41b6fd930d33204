"""One yard for one test: a fresh table, the operator as a process, agents, and the history that is judged."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid
from functools import cache
from pathlib import Path

import records
from github import GitHub
from history import LIVE, History, broken, state_of
from machines import Machines
from records import Table, request_key

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import verbs  # noqa: E402

RUNYARD = os.environ.get("RUNYARD_BIN", "runyard")
SERVE = Path(__file__).resolve().parents[2] / "engines" / "serve"
REPOSITORY = "octo/app"
WITHIN = 600.0
"""Seconds after which what hangs is given up. It judges nothing: everything takes less, however busy the machine is."""

TIMING = {
    "created": "60s",
    "claimed": "60s",
    "cleanup": "60s",
    "grace": "2s",
    "heartbeat": "250ms",
    "stale": "20s",
    "agent_poll": "250ms",
    "resync": "1s",
    "reannounce": "1s",
    "lease": "1s",
    "orphan": "2s",
}
"""Quick passes, patient deadlines; a test shortens the one it is about."""


ONE_AT_A_TIME = threading.Lock()


def engine() -> str:
    """The endpoint of one ministack for the whole run."""
    with ONE_AT_A_TIME:
        return started()


@cache
def started() -> str:
    wrapper = subprocess.Popen([SERVE, "ministack"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    endpoint = wrapper.stdout.readline().strip()
    if not endpoint:
        raise RuntimeError("ministack did not start: run tests/run, which installs it")
    atexit.register(lambda: (wrapper.stdin.close(), wrapper.wait()))
    return endpoint


def dynamodb_endpoint() -> str:
    return os.environ.get("RUNYARD_TEST_DYNAMODB") or engine()


class Operator:
    """`runyard operator` until it is ended; its log is kept."""

    def __init__(self, config: Path, environment: dict):
        self.log: list[str] = []
        self.listen, self.listening = "", threading.Event()
        self.process = subprocess.Popen(
            [RUNYARD, "operator", "--config", config],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        if not self.listening.wait(WITHIN) or not self.listen:
            self.end()
            raise AssertionError("the operator logged no field `listen`:\n" + self.tail())

    def read(self) -> None:
        for line in self.process.stderr:
            self.log.append(line)
            if not self.listen and (found := field(line, "listen")):
                self.listen = found
                self.listening.set()
        self.listening.set()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.listen}{path}", timeout=WITHIN) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of a metric's series with these labels; nothing when there is none."""
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in self.get("/metrics")[1].splitlines()
            if line.split("{")[0].split(" ")[0] == name and all(f'{k}="{v}"' in line for k, v in labels.items())
        ]
        return sum(values) if values else None

    def tail(self) -> str:
        return "".join(self.log[-40:])

    def end(self, outright: bool = False) -> int:
        """Ends it kindly, or as a power cut would; its exit code."""
        if self.process.poll() is None:
            self.process.kill() if outright else self.process.terminate()
        try:
            code = self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join(timeout=5)
        return code


def field(line: str, name: str) -> str:
    """A field of a JSON log line, wherever the line keeps its fields."""
    try:
        left = [json.loads(line)]
    except ValueError:
        return ""
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if isinstance(value.get(name), str):
                return value[name]
            left += value.values()
    return ""


class Scenario(unittest.TestCase):
    """A yard of its own for each test. After each test the whole history must have kept the contract's laws."""

    timing: dict[str, str] = {}
    sealed = False
    operators = 1
    packages: dict[str, str] = {}
    """The operator's section `agent`."""
    kept: dict[str, str] = {}
    """The operator's section `history`."""

    def setUp(self) -> None:
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="runyard-foreign-")))
        self.table_name = f"yard-{uuid.uuid4().hex[:12]}"
        self.github_settings = {"kind": "none"}
        self.prepare()
        self.environment = self.surroundings()
        self.dynamodb = records.client("dynamodb", dynamodb_endpoint())
        self.sqs = records.client("sqs", engine())
        self.table = Table(self.dynamodb, self.table_name)
        self.running: list[Operator] = []
        # Laws that a test breaks itself, as people may by hand.
        self.by_hand: list[str] = []
        self.runyard("init")
        stream = self.dynamodb.describe_table(TableName=self.table_name)["Table"]["LatestStreamArn"]
        self.history = History(records.client("dynamodbstreams", dynamodb_endpoint()), stream)
        self.machines = Machines(self.table, self.sealed)
        self.addCleanup(self.judge)
        for _ in range(self.operators):
            self.start_operator()

    def prepare(self) -> None:
        """For a scenario's own surroundings, before anything starts."""

    def surroundings(self) -> dict:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "RUST_BACKTRACE") if name in os.environ}
        return (
            kept
            | records.CREDENTIALS
            | {
                "AWS_ENDPOINT_URL": engine(),
                "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_endpoint(),
                "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": dynamodb_endpoint(),
                "AWS_EC2_METADATA_DISABLED": "true",
                "RUNYARD_TABLE": self.table_name,
                "RUNYARD_COMPUTE__KIND": "none",
            }
        )

    def start_operator(self) -> Operator:
        sections = {
            "timing": TIMING | self.timing,
            "compute": {"kind": "none"},
            "github": self.github_settings,
            "agent": self.packages,
            "history": self.kept,
            "admin": {"listen": "127.0.0.1:0"},
            "log": {"format": "json"},
        }
        config = self.scratch / "runyard.toml"
        config.write_text(
            "\n".join(
                f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
                for section, values in sections.items()
            )
        )
        operator = Operator(config, self.environment)
        self.running.append(operator)
        return operator

    @property
    def operator(self) -> Operator:
        return self.running[-1]

    def judge(self) -> None:
        """Ends everything, then asks the history."""
        for operator in self.running:
            operator.end()
        self.machines.stop()
        self.history.stop()
        self.dynamodb.delete_table(TableName=self.table_name)
        self.assertTrue(self.history.steps, "the history saw nothing")
        laws = [law for law in broken(self.history) if law not in self.by_hand]
        self.assertFalse(laws, "laws were broken:\n" + "\n".join(dict.fromkeys(laws)))

    # Acting.

    def runyard(self, *arguments: str, exits: int = 0, **environment: str) -> subprocess.CompletedProcess:
        """One command, which must end with this code."""
        done = verbs.run([RUNYARD, *arguments], env=self.environment | environment)
        self.assertEqual(done.returncode, exits, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def read(self, *arguments: str) -> dict:
        """What a reading command says as JSON."""
        return json.loads(self.runyard(*arguments, "-o", "json").stdout)

    def pool(self, resource_class: str = "small", **spec) -> None:
        """Applies one pool, by the command line as people do."""
        spec = {"resourceClass": resource_class, "cpu": 2, "mmem": 4096, "desired": 0, "max": 5} | spec
        file = self.scratch / f"{resource_class}.json"
        file.write_text(json.dumps([spec]))
        # What a file does not name falls back to its default.
        self.runyard("apply", "-f", str(file), "--allow-widening")

    def ask(
        self, run_id: str, count: int = 1, resource_class: str = "small", repository: str = REPOSITORY, **intent
    ) -> dict:
        """A workflow's intent, by a write of our own; the request's key."""
        return self.table.provision(repository, run_id, resource_class, count, **intent)

    # Looking.

    def eventually(self, what: str, probe):
        """Waits until the probe gives something true, and gives that."""
        deadline = time.monotonic() + WITHIN
        while not (found := probe()):
            if time.monotonic() > deadline:
                self.fail(f"never within {WITHIN:.0f} s: {what}\n{self.picture()}")
            time.sleep(0.05)
        return found

    def picture(self) -> str:
        shown = [
            json.dumps(item)
            for kind in ("pool", "request", "instance", "agent", "launch")
            for item in self.table.all(kind)
        ]
        logs = [f"-- operator {number}\n{operator.tail()}" for number, operator in enumerate(self.running)]
        return "\n".join([*shown, *logs])

    def phase(self, key: dict, *phases: str) -> dict:
        """Waits for a request to reach one of these phases; the record."""
        reached = lambda: (record := self.table.get(key)) and record.get("phase") in phases and record  # noqa: E731
        return self.eventually(f"{key['sk']} of {key['pk']} is {' or '.join(phases)}", reached)

    def instances(self, state: str = "", resource_class: str = "small") -> list[dict]:
        """The class's machines: in this state, or every live one."""
        found = [item for item in self.table.all("instance") if item.get("resourceClass") == resource_class]
        wanted = (lambda item: state_of(item) == state) if state else (lambda item: item["state"] in LIVE)
        return [item for item in found if wanted(item)]

    def pooled(self, count: int, resource_class: str = "small") -> list[dict]:
        """Waits for exactly this many machines in the pool."""
        return self.eventually(
            f"{count} pooled", lambda: len(found := self.instances("idle pooled", resource_class)) == count and found
        )

    def instance(self, instance: dict) -> dict | None:
        return self.table.get(records.instance_key(instance["instanceArn"]))

    def ended(self, instance: dict, *reasons: str) -> dict:
        """Waits for a machine's end, which must be for one of these reasons."""
        record = self.eventually(
            f"{instance['instanceId']} is terminated",
            lambda: (now := self.instance(instance)) and now["state"] == "terminated" and now,
        )
        self.assertIn(record["reason"], reasons)
        return record

    def settle(self) -> None:
        """Two full passes over everything, waited for: what has not happened now does not happen by itself."""
        for _ in range(2):
            self.runyard("refresh")

    def holders(self, key: dict) -> list[dict]:
        """The live machines assigned to a request, by the machines' own records."""
        wanted = {"pk": key["pk"], "sk": key["sk"]}
        return [
            item
            for item in self.table.all("instance")
            if item["state"] in LIVE and item["runId"] and item.get("request") == wanted
        ]


class WithGitHub(Scenario):
    """A yard that seals registrations, and has a GitHub to ask for them."""

    sealed = True

    def prepare(self) -> None:
        self.github = GitHub()
        self.addCleanup(self.github.close)
        token = self.scratch / "token"
        token.write_text("github-token-SECRET-000000\n")
        token.chmod(0o600)
        self.github_settings = {"kind": "real", "api_url": self.github.url, "token_file": str(token)}


def request_of(run_id: str, repository: str = REPOSITORY, name: str = "default", attempt: int = 1) -> dict:
    return request_key(repository, run_id, name, attempt)
