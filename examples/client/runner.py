#!/usr/bin/env python3
"""The same agent with GitHub (2.5): it opens its sealed credential and starts GitHub's runner. It needs PyNaCl, the
Python interface of libsodium.

    RUNYARD_AGENT=examples/client/runner.py runyard up

Use it in local mode alone: jobs are not isolated from the machine, and their files outside the runner's directory are
not removed. Section 2.7 lists the duties of an agent for real machines."""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

from nacl.exceptions import CryptoError  # noqa: E402
from nacl.public import PrivateKey, SealedBox  # noqa: E402

import agent  # noqa: E402
from agent import Failed  # noqa: E402

LISTENS = "Listening for Jobs"
"""GitHub's runner prints this when it waits for jobs."""


class Runner(agent.Work):
    """Runs GitHub's runner in a fresh directory for each claim."""

    def __init__(self, config: dict):
        # The key must survive a restart of the agent, but not the machine (2.5, rule 2). Here both end together.
        self.key = PrivateKey.generate()
        self.package, self.stop_within = config["runner"], agent.seconds(config["timing"]["stop"])
        self.archive = Path(config["work_dir"]) / "runner.tar.gz"
        self.place = Path(config["work_dir"]) / "runner"
        self.box: dict = {}
        self.number: int | None = None
        self.process: subprocess.Popen | None = None

    def boot(self) -> None:
        super().boot()
        try:
            urllib.request.urlretrieve(self.package["url"], self.archive)
        except OSError as why:
            raise Failed(f"{self.package['url']}: {why}") from None
        if hashlib.sha256(self.archive.read_bytes()).hexdigest() != self.package["sha256"]:
            raise Failed(f"{self.package['url']} has another SHA-256 than {self.package['sha256']}")

    def attributes(self) -> dict:
        """Returns the public key and, once the runner is registered, its number at GitHub (2.5, rules 12 and 13)."""
        more = {"runnerId": self.number, "runnerName": self.box.get("runnerName")} if self.number else {}
        return {"publicKey": base64.b64encode(bytes(self.key.public_key)).decode()} | more

    def can_register(self, instance: dict) -> bool:
        """Returns whether the record has the credential of this claim. A credential of another claim is not used."""
        try:
            box = json.loads(SealedBox(self.key).decrypt(base64.b64decode(instance.get("registration", ""))))
        except (CryptoError, ValueError, TypeError):
            return False
        if box.get("claimId") != instance["claimId"]:
            return False
        self.box = box
        return True

    def register(self, instance: dict) -> None:
        super().register(instance)
        self.number = None
        if "token" not in self.box:
            raise Failed("this agent supports registrationMode run only")
        shutil.rmtree(self.place, ignore_errors=True)
        with tarfile.open(self.archive) as package:
            package.extractall(self.place, filter="tar")
        group = ["--runnergroup", self.box["runnerGroup"]] if self.box.get("runnerGroup") else []
        configured = self.script(
            "config.sh", "--unattended", "--replace", "--disableupdate", "--no-default-labels",
            "--url", self.box["url"], "--name", self.box["runnerName"], *group,
            "--labels", ",".join(self.box["labels"]),
            # Every process of the machine can read arguments, but not the environment.
            ACTIONS_RUNNER_INPUT_TOKEN=self.box["token"],
        )
        if configured.wait() != 0:
            raise Failed(f"config.sh ended with {configured.returncode}")
        self.number = json.loads((self.place / ".runner").read_text("utf-8-sig"))["agentId"]
        self.process = self.script("run.sh")
        while LISTENS not in self.log.read_text():
            if self.process.poll() is not None:
                raise Failed(f"run.sh ended with {self.process.returncode} before it listened")
            time.sleep(0.1)

    def script(self, name: str, *arguments: str, **more: str) -> subprocess.Popen:
        """Starts a script of the runner in its own session. Its environment has no credential of the agent."""
        kept = {one: os.environ[one] for one in ("PATH", "LANG", "RUNYARD_MACHINE") if one in os.environ}
        self.log = self.place / f"{name}.log"
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [self.place / name, *arguments], cwd=self.place, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=kept | {"HOME": str(self.place), "RUNNER_ALLOW_RUNASROOT": "1"} | more, start_new_session=True,
            )

    def stop(self, claim: str) -> None:
        """Stops the runner; a job may take `timing.stop` to end."""
        super().stop(claim)
        if self.process:
            for number in (signal.SIGINT, signal.SIGKILL):
                try:
                    os.killpg(self.process.pid, number)
                    self.process.wait(self.stop_within)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
            self.process = None

    def clean(self, claim: str) -> None:
        """Removes the directory. The operator removes the runner at GitHub by its number (2.5, rule 12)."""
        super().clean(claim)
        shutil.rmtree(self.place, ignore_errors=True)
        if self.place.exists():
            raise Failed(f"{self.place} cannot be removed")


if __name__ == "__main__":
    agent.main(Runner)
