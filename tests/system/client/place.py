"""A yard of local mode that a command of the client's page starts, whose machines run the client."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CLIENT = ROOT / "examples/client"
GOLDEN = ROOT / "tests/golden"
sys.path += [str(CLIENT), str(ROOT / "tests/system"), str(ROOT / "tests/system/foreign")]

import boto3  # noqa: E402
import verbs  # noqa: E402
from botocore.config import Config  # noqa: E402
from history import History, broken  # noqa: E402
from table import Table  # noqa: E402

PROGRAM = Path(os.environ["RUNYARD_BIN"])
WITHIN = 600
"""Seconds after which what hangs is given up: it judges nothing."""


def golden(name: str) -> dict:
    """A record as it is stored."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def until(what: str, look):
    """The first answer that is true."""
    end = time.monotonic() + WITHIN
    while not (found := look()):
        assert time.monotonic() < end, f"waited {WITHIN} s for {what}"
        time.sleep(0.1)
    return found


def commands() -> list[str]:
    """The commands of the client's page."""
    return re.findall(r"^```sh\n(.*?)^```$", (CLIENT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def ends_with_its_parent() -> None:
    """In the child: SIGINT from the kernel should the tests be killed outright (Linux)."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGINT)


class Yard:
    """`runyard up` until it is ended, and the history of its table, which must have kept the contract's laws."""

    def __init__(self, command: str = ""):
        self.scratch = Path(tempfile.mkdtemp(prefix="runyard-client-"))
        self.dir, self.log = self.scratch / "yard", self.scratch / "up.log"
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "RUST_BACKTRACE") if name in os.environ}
        self.environment = kept | {"RUNYARD_DIR": str(self.dir), "RUNYARD_STAND_IN_PACKAGE": "unpaced"}
        # The interpreter of these tests has libsodium.
        self.environment["PATH"] = f"{PROGRAM.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        with self.log.open("wb") as log:
            self.up = subprocess.Popen(
                self.bash(command or commands()[0]), cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=ends_with_its_parent,
            )
        until("the yard", lambda: "Runyard is up" in self.log.read_text() or self.up.poll() is not None)
        assert self.up.poll() is None, self.log.read_text()
        lines = (self.dir / "env").read_text().splitlines()
        given = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
        self.environment |= given
        self.table = Table(self.environment)
        stream = self.boto("dynamodb").describe_table(TableName=self.table.name)["Table"]["LatestStreamArn"]
        self.history = History(self.boto("dynamodbstreams"), stream)
        self.by_hand: list[str] = []
        """Records that a test wrote as no client may."""

    def boto(self, service: str):
        """A client of somebody else's."""
        given = self.environment
        return boto3.client(
            service, endpoint_url=given["AWS_ENDPOINT_URL"], region_name=given["AWS_REGION"],
            aws_access_key_id=given["AWS_ACCESS_KEY_ID"], aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
            # The names of the engine's shards are shorter than AWS's.
            config=Config(parameter_validation=False),
        )

    def bash(self, line: str) -> list[str]:
        """A command of the page, on this yard."""
        return ["/bin/bash", "--noprofile", "--norc", "-c", line.replace(".runyard/", f"{self.dir}/")]

    def runyard(self, *arguments: str, **environment: str) -> str:
        return verbs.said([PROGRAM, *arguments], env=self.environment | environment)

    def workflow(self, *arguments: str) -> list:
        """The command line of the client."""
        return [sys.executable, CLIENT / "workflow.py", *arguments]

    def instance(self, machine: str) -> dict:
        return self.table.get(f"instance#{arn(machine)}", "instance")

    def agent(self, machine: str) -> dict:
        return self.table.get(f"agent#{arn(machine)}", "agent")

    def printed(self, machine: str) -> list[str]:
        """What the machine's agent printed."""
        return (self.dir / "machines" / machine / "agent.log").read_text().splitlines()

    def scratch_table(self) -> Table:
        """Another table, which no operator looks at."""
        table = Table(self.environment, name=f"scratch-{uuid.uuid4().hex[:8]}")
        self.runyard("init", RUNYARD_TABLE=table.name)
        return table

    def end(self) -> None:
        try:
            self.history.stop()
        finally:
            if self.up.poll() is None:
                os.killpg(self.up.pid, signal.SIGINT)
            self.up.wait(WITHIN)
            shutil.rmtree(self.scratch, ignore_errors=True)
        assert self.history.steps, "the history saw nothing"
        laws = [law for law in broken(self.history) if not law.startswith(tuple(self.by_hand))]
        assert not laws, "laws were broken:\n" + "\n".join(dict.fromkeys(laws))


def arn(machine: str) -> str:
    return f"arn:aws:ec2:local:000000000000:instance/{machine}"
