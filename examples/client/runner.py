#!/usr/bin/env python3
"""The same machine with GitHub (contract 2.5): it opens its sealed credentials, and has GitHub's own runner listen. Needs
PyNaCl, which is libsodium.

    RUNYARD_AGENT=examples/client/runner.py runyard up

Jobs are not kept apart from the machine, and what they leave outside of the runner's directory stays: for local mode, and
no other machine (2.7 tells what an agent owes)."""

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
"""What GitHub's runner prints once it waits for jobs."""


class Runner(agent.Work):
    """GitHub's runner in a directory of its own for each claim."""

    def __init__(self, config: dict):
        # It survives the agent, not the machine (2.5, rule 2); here both end together.
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

    def shows(self) -> dict:
        """The key from the beginning; the runner's number with the signal of its registration at the latest (2.5, rule 12)."""
        more = {"runnerId": self.number, "runnerName": self.box.get("runnerName")} if self.number else {}
        return {"publicKey": base64.b64encode(bytes(self.key.public_key)).decode()} | more

    def may_register(self, instance: dict) -> bool:
        """Whether the credential of this very claim is there: another claim's is not used (2.5)."""
        try:
            box = json.loads(SealedBox(self.key).decrypt(base64.b64decode(instance.get("registration", ""))))
        except (CryptoError, ValueError, TypeError):
            return False
        self.box = box
        return box.get("claimId") == instance["claimId"]

    def register(self, instance: dict) -> None:
        super().register(instance)
        self.number = None
        if "token" not in self.box:
            raise Failed("this agent knows registrationMode run alone")
        shutil.rmtree(self.place, ignore_errors=True)
        with tarfile.open(self.archive) as package:
            package.extractall(self.place, filter="tar")
        group = ["--runnergroup", self.box["runnerGroup"]] if self.box.get("runnerGroup") else []
        configured = self.script(
            "config.sh", "--unattended", "--replace", "--disableupdate", "--no-default-labels", "--url", self.box["url"],
            "--name", self.box["runnerName"], "--labels", ",".join(self.box["labels"]), *group,
            # Not as an argument, which every process of the machine could read.
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
        """Starts a script of the runner in a session of its own; nothing of the agent's credentials is in its environment."""
        kept = {one: os.environ[one] for one in ("PATH", "LANG", "RUNYARD_MACHINE") if one in os.environ}
        self.log = self.place / f"{name}.log"
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [self.place / name, *arguments], cwd=self.place, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=kept | {"HOME": str(self.place), "RUNNER_ALLOW_RUNASROOT": "1"} | more, start_new_session=True,
            )

    def stop(self, claim: str) -> None:
        """The runner may finish its job, for a while."""
        super().stop(claim)
        if self.process:
            for sent in (signal.SIGINT, signal.SIGKILL):
                try:
                    os.killpg(self.process.pid, sent)
                    self.process.wait(self.stop_within)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
            self.process = None

    def clean(self, claim: str) -> None:
        """With the number in the agent record the operator removes the runner at GitHub, once this is signalled (2.5, rule 12)."""
        super().clean(claim)
        shutil.rmtree(self.place, ignore_errors=True)
        if self.place.exists():
            raise Failed(f"{self.place} cannot be removed")


if __name__ == "__main__":
    agent.main(Runner)
