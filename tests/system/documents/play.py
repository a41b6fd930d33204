"""Do the commands of the documents work, and show what the documents show? Each page is played in a directory of its own,
block by block, with the real program against a yard of local mode; `commands.py` says which blocks, and how a block is
marked that cannot be run here. Of those that are not run, each call of `runyard` must at least be one that the program
can read, and each call of another tool must name what the repository has.

    play.py [PAGE...]    these pages alone

Placeholders of the documents stand for records that are made for the block: CLASS for a class with an idle machine,
INSTANCE for that machine, RUN_ID for a run with a request of it. `cargo build` is left out: the programs are those under
test."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commands

ROOT = commands.ROOT
sys.path.insert(0, str(ROOT / "tests/system"))
import verbs  # noqa: E402

PROGRAM = Path(os.environ["RUNYARD_BIN"])
LIMIT = 600
"""Seconds that anything may take; nothing here is judged by how long it takes."""
LOOKS = {"get", "explain", "describe", "plan", "events", "doctor", "aws"}
"""What changes nothing is asked again until it shows what the page shows."""
PROGRESS = re.compile(r"^(Pending|Fulfilling) ")
ID = re.compile(r"\bi-[0-9a-f]{17}\b")
VARIES = [
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b(i|l)-[0-9a-f]{16,17}(\.\d+)?"), r"\1-ID"),
    (re.compile(r"\b(?:\d+[dhms]){1,3}\b"), "AGE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "PORT"),
    (re.compile(r"(heartbeatSeq|uses): +\d+"), r"\1: N"),
    (re.compile(r"\d+\.\d+ s\b"), "SECONDS"),
    (re.compile(r"\s+"), " "),
]

# What a page takes for granted: commands that are run before its first block that has a yard, and variables.
GIVEN = {
    "docs/tutorial.md": ("", {"GITHUB_RUN_ID": "4", "GITHUB_REPOSITORY": "demo/app", "GITHUB_RUN_ATTEMPT": "1"}),
    "docs/migrate.md": (f"cp {shlex.quote(str(ROOT))}/config/pools.yaml .", {}),
    "docs/sharing.md": (
        "echo 'pools: [{resourceClass: linux-x64, cpu: 1, mmem: 1024, max: 1, sharing: {by: repository}}]' | runyard apply -f - && "
        "runyard provision --repository demo/app --run-id 1234567890 --class linux-x64 --count 1",
        {},
    ),
}


def normal(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, instead in VARIES:
        line = pattern.sub(instead, line)
    return line.strip()


def missing(shown: list[str], said: list[str], ids: dict[str, str]) -> list[str]:
    """The lines that a document shows and the program did not say. Remembers whose ids stand for the document's."""
    left = [(normal(line), line) for line in said]
    lacking = []
    for line in shown:
        wanted = normal(line)
        if wanted in ("", "...") or PROGRESS.match(wanted) or re.fullmatch(r"[-+|]+", wanted):
            continue
        at = next((place for place, (have, _) in enumerate(left) if have == wanted), None)
        if at is None:
            lacking.append(line)
            continue
        ids.update(zip(ID.findall(line), ID.findall(left.pop(at)[1])))
    return lacking


class Page:
    """A document, its directory, its shell's variables, and its yard once it needs one."""

    def __init__(self, name: str, scratch: Path, shims: Path):
        self.name, self.scratch = name, scratch
        self.yard = scratch / "yard"
        self.log = scratch / "up.log"
        self.up = None
        self.ids: dict[str, str] = {}
        self.variables = scratch / "variables"
        self.directory = scratch / "here"
        self.directory.mkdir()
        self.made = 0
        home = scratch / "home"
        home.mkdir()
        self.environment = {
            "PATH": f"{shims}:{PROGRAM.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(home),
            "CARGO_TARGET_DIR": str(shims / "target"),
            "RUNYARD_LOG": "error",
            "RUNYARD_STAND_IN_PACKAGE": "unpaced",
        } | GIVEN.get(name, ("", {}))[1]

    def shell(self, text: str, stdin: str = "") -> tuple[int, str]:
        """Runs a command line in the page's shell, which keeps its variables; its exit code and what it said."""
        keep = shlex.quote(str(self.variables))
        script = f"[ ! -e {keep} ] || . {keep}\n{text}\ncode=$?\nexport -p >{keep}\nexit $code\n"
        ended = verbs.run(
            ["/bin/bash", "--noprofile", "--norc", "-c", script], cwd=self.directory, env=self.environment, input=stdin,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        return ended.returncode, ended.stdout

    def start(self, text: str = "runyard up --dir /tmp/yard") -> None:
        """Starts a yard by a command line, and waits until it serves."""
        keep = shlex.quote(str(self.variables))
        line = text.replace("/tmp/yard", shlex.quote(str(self.yard)))
        with self.log.open("wb") as log:
            self.up = subprocess.Popen(
                ["/bin/bash", "--noprofile", "--norc", "-c", f"[ ! -e {keep} ] || . {keep}\nexec {line}"], cwd=self.directory,
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        end = time.monotonic() + LIMIT
        while "Runyard is up" not in self.log.read_text():
            assert self.up.poll() is None and time.monotonic() < end, f"no yard: {self.log.read_text()}"
            time.sleep(0.1)

    def served(self) -> None:
        """Has a yard that the page's shell talks to."""
        if self.up is None:
            self.start()
            self.must(f". {shlex.quote(str(self.yard))}/env")
            self.given()

    def given(self) -> None:
        """Runs what the page takes for granted."""
        if before := GIVEN.get(self.name, ("", {}))[0]:
            self.must(before)

    def must(self, text: str) -> str:
        """Runs a command line that is to succeed."""
        code, said = self.shell(text)
        assert code == 0, f"{text}: ended with {code}: {said}"
        return said

    def stands_for(self, block: commands.Block) -> dict[str, str]:
        """Makes the records that a block's placeholders stand for."""
        text = "\n".join(command.text for command in block.commands if not block.why_not(command))
        names = {name for name in ("CLASS", "INSTANCE", "RUN_ID") if re.search(rf"\b{name}\b", text)}
        if not names:
            return {}
        self.served()
        self.made += 1
        name = f"made{self.made}"
        spec = f"pools: [{{resourceClass: {name}, cpu: 1, mmem: 1024, max: 40, desired: 1}}]"
        self.must(f"echo '{spec}' | runyard apply -f -")
        found = {"CLASS": name}
        if "INSTANCE" in names:
            end = time.monotonic() + LIMIT
            while not (said := self.must(f"runyard get instances --class {name} --state idle --no-headers -o name").split()):
                assert time.monotonic() < end, f"no machine of {name}"
                time.sleep(0.2)
            found["INSTANCE"] = said[0].rsplit("/", 1)[-1]
        if "RUN_ID" in names:
            found["RUN_ID"] = str(9000 + self.made)
            self.must(f"runyard provision --repository demo/app --run-id {found['RUN_ID']} --class {name} --count 1 --wait")
        return found

    def fill(self, text: str, found: dict[str, str]) -> str:
        """A command line with what its placeholders and the document's ids stand for."""
        for name, value in found.items():
            text = re.sub(rf"\b{name}\b", value, text)
        text = ID.sub(lambda match: self.ids.get(match[0], match[0]), text)
        return text.replace("/tmp/yard", shlex.quote(str(self.yard)))

    def play(self, block: commands.Block) -> int:
        """Runs the commands of a block that are to be run; how many."""
        wanted = [command for command in block.commands if not block.why_not(command)]
        if wanted and any(commands.calls(command.text) for command in wanted):
            own = any("runyard up" in command.text or command.text.startswith(". /tmp/yard") for command in wanted)
            if not own and "runyard demo" not in wanted[0].text:
                self.served()
        found = self.stands_for(block)
        for command in wanted:
            place = f"{self.name}:{command.line}"
            if command.text.startswith("runyard up"):
                self.start(command.text)
                self.given()
                continue
            self.one(place, command, self.fill(command.text, found))
        return len(wanted)

    def one(self, place: str, command: commands.Command, text: str) -> None:
        """Runs a command until it shows what the document shows, if it changes nothing; otherwise once."""
        (call,) = commands.calls(text)[:1] or [command.words()]
        fails = any(re.match(r"(error:|Failed )", line) for line in command.shown) and "echo" not in text
        end = time.monotonic() + LIMIT
        while True:
            code, said = self.shell(text, stdin="y\n")
            lacking = missing(command.shown, said.splitlines(), self.ids)
            if (code != 0) == fails and not lacking:
                return
            if call[0] not in LOOKS or time.monotonic() > end:
                raise AssertionError(f"{place}: {text}: ended with {code}, does not show {lacking}, but said:\n{said}")
            time.sleep(0.3)

    def close(self) -> None:
        """Ends its yard."""
        if self.up and self.up.poll() is None:
            self.up.send_signal(signal.SIGINT)
            self.up.wait(LIMIT)


def readable(block: commands.Block, page: Page) -> list[str]:
    """What of the commands that are not run could not be run anywhere."""
    wrong = []
    values = {"CLASS": "small", "INSTANCE": "i-0123456789abcdef0", "RUN_ID": "1", "KEY_FILE": "app.pem"}
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "none",
               "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true"}
    for command in block.commands:
        if not block.why_not(command):
            continue
        place = f"{block.file}:{command.line}"
        for call in commands.calls(command.text):
            words = [values.get(word, word) for word in call]
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended = subprocess.run([PROGRAM, *words], cwd=page.directory, env=page.environment | nowhere, capture_output=True,
                                       text=True, timeout=5, stdin=subprocess.DEVNULL)
                if ended.returncode == 2 and "try '--help'" in ended.stderr:
                    wrong.append(f"{place}: {ended.stderr.splitlines()[0]}")
        wrong += [f"{place}: {why}" for why in strangers(command.text)]
    return wrong


def strangers(text: str) -> list[str]:
    """The names in calls of other tools that the repository does not have."""
    wrong = []
    if "--template-file config/cloudformation.yaml" in text:
        template = (ROOT / "config/cloudformation.yaml").read_text()
        known = re.findall(r"^  (\w+):$", template[template.index("\nParameters:"):template.index("\nConditions:")], re.MULTILINE)
        wrong += [f"no parameter {name}" for name in re.findall(r"(?<=[ \n])([A-Z]\w+)=", text.split("--parameter-overrides")[1])
                  if name not in known and not re.search(rf"^{name}=", text, re.MULTILINE)]
    if "docker build" in text:
        known = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        wrong += [f"no build argument {name}" for name in re.findall(r"--build-arg (\w+)", text) if name not in known]
    if "packer build" in text:
        known = re.findall(r'^variable "(\w+)"', (ROOT / "config/packer/machine.pkr.hcl").read_text(), re.MULTILINE)
        wrong += [f"no variable {name}" for name in re.findall(r"-var '?(\w+)=", text) if name not in known]
    return wrong


def shims(scratch: Path) -> Path:
    """Programs that stand for others: a `cargo` that has built already."""
    made = scratch / "shims"
    (made / "target").mkdir(parents=True)
    (made / "target/debug").symlink_to(PROGRAM.parent)
    cargo = made / "cargo"
    cargo.write_text('#!/bin/sh\n[ "$*" = "build --locked --workspace --bins" ] || { echo "cargo: $* is not built here" >&2; exit 1; }\n')
    cargo.chmod(0o755)
    return made


def main(names: list[str]) -> int:
    """Plays the pages."""
    wrong, run, marked = commands.faults(), 0, 0
    with tempfile.TemporaryDirectory(prefix="runyard-documents-") as made:
        scratch = Path(made)
        programs = shims(scratch)
        for name in names or [name for name in commands.documents() if name != commands.REFERENCE]:
            blocks = commands.blocks(name)[0]
            if not blocks:
                continue
            place = scratch / re.sub(r"\W", "-", name)
            place.mkdir()
            page = Page(name, place, programs)
            count, of = 0, sum(len(block.commands) for block in blocks)
            for block in blocks:
                wrong += readable(block, page)
                try:
                    count += page.play(block)
                except (AssertionError, subprocess.TimeoutExpired) as why:
                    wrong.append(str(why))
            page.close()
            print(f"{name}: {count} of {of} commands run", flush=True)
            run, marked = run + count, marked + of - count
            shutil.rmtree(place, ignore_errors=True)
    for fault in wrong:
        print(f"documents: {fault}", file=sys.stderr)
    print(f"{run} commands run, {marked} marked with why not, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
