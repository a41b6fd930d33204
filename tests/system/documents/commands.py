"""The commands of the documents: where they are, whether each is run or marked with why not, and whether each call of
`runyard` names a verb and options that the program has.

A block of `sh` or `console` is run by `play.py`, unless a comment above it says why not:

    <!-- not run: REASON -->                    the block
    <!-- not run (kubectl, runyard ssh): REASON -->    the calls in it that begin so
    <!-- not run on this page (kubectl): REASON -->    such calls in any block of the page

Standard library only; `.ci/docs` calls `faults`."""

import dataclasses
import itertools
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = "docs/reference/cli.md"
FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\w*)")
MARK = re.compile(r"^\s*<!--\s*not run(?P<page> on this page)?(?:\s*\((?P<programs>[^)]*)\))?\s*:\s*(?P<reason>.*?)\s*-->\s*$")
SHELLS = ("sh", "bash", "shell", "console")
SPAN = re.compile(r"`((?:[A-Z_]+=\S+ )?runyard(?: [^`]*)?)`")
CAN_SHOW_MORE = re.compile(r"[…<>]|\.\.\.")
ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")

WITH_VALUE = ("--table", "--yard", "--output", "-o")
"""The options before the verb that take a word of their own."""


@dataclasses.dataclass
class Command:
    """One command line of a block."""

    line: int
    text: str
    shown: list[str] = dataclasses.field(default_factory=list)
    """The output that the document shows below it."""

    def words(self) -> list[str]:
        """Its words, without the variables set for it; the program without its directory."""
        words = [word for word in words_of(self.text) if not ASSIGNMENT.match(word)]
        return [words[0].rsplit("/", 1)[-1], *words[1:]] if words else [""]

    def calls(self, names: str) -> bool:
        """Whether its first words are these: a program, or a program and its verb."""
        return self.words()[: len(names.split())] == names.split()


@dataclasses.dataclass
class Block:
    """A fenced block of commands."""

    file: str
    line: int
    kind: str
    commands: list[Command]
    reason: str = ""
    """Why it is not run."""
    not_run: tuple[str, ...] = ()
    """The first words of the calls that the reason is about; none: the whole block."""
    page: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of the first words of calls that are not run on this page: why."""

    def why_not(self, command: Command) -> str:
        """Why a command of it is not run; empty if it is."""
        if self.reason and (not self.not_run or any(map(command.calls, self.not_run))):
            return self.reason
        return next((reason for names, reason in self.page.items() if command.calls(names)), "")


def documents() -> list[str]:
    """Every page that git knows, new ones too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted(name for name in set(found) if name and (ROOT / name).is_file())


def words_of(text: str) -> list[str]:
    """The words of a command line; what cannot be split, by spaces."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def complete(text: str) -> bool:
    """Whether a line of a block ends its command."""
    if re.search(r"(\\|&&|\|\||\|)\s*$", text):
        return False
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return False
    opened = sum(word in ("do", "then") for word in words)
    return opened <= sum(word in ("done", "fi", "done;") for word in words) and not ("for" in words and not opened)


def commands_of(kind: str, lines: list[tuple[int, str]]) -> list[Command]:
    """The commands of a block; of a console, those after the prompt, with what is shown below each."""
    made: list[Command] = []
    open_ = False
    for number, line in lines:
        if open_:
            made[-1].text += "\n" + line
        elif kind == "console":
            if line.startswith("$ "):
                made.append(Command(number, line[2:]))
            elif made:
                made[-1].shown.append(line)
                continue
            else:
                continue
        elif line.strip() and not line.lstrip().startswith("#"):
            made.append(Command(number, line))
        else:
            continue
        open_ = not complete(made[-1].text)
    for command in made:
        while command.shown and not command.shown[-1].strip():
            command.shown.pop()
    return made


def blocks(name: str) -> tuple[list[Block], list[str]]:
    """The blocks of a page that hold commands, and the marks that belong to none."""
    found, wrong = [], []
    page: dict[str, str] = {}
    mark, fence = None, None
    for number, line in enumerate((ROOT / name).read_text().split("\n"), 1):
        at = FENCE.match(line)
        if fence:
            if at and at[2].startswith(fence["marker"]) and not at[3]:
                if fence["kind"] in SHELLS:
                    reason, programs = fence["mark"] or ("", ())
                    made = commands_of(fence["kind"], fence["lines"])
                    found.append(Block(name, fence["line"], fence["kind"], made, reason, programs, page))
                fence = None
            else:
                fence["lines"].append((number, line.removeprefix(fence["indent"])))
            continue
        if at:
            if mark and at[3] not in SHELLS:
                wrong.append(f"{name}:{number}: the mark above is about no commands")
            fence = {"marker": at[2], "kind": at[3], "line": number, "indent": at[1], "lines": [], "mark": mark}
            mark = None
            continue
        if mark:
            wrong.append(f"{name}:{number}: the mark above has no block below it")
            mark = None
        if given := MARK.match(line):
            programs = tuple(one.strip() for one in (given["programs"] or "").split(",") if one.strip())
            if not given["reason"]:
                wrong.append(f"{name}:{number}: the mark says no reason")
            if given["page"]:
                if not programs:
                    wrong.append(f"{name}:{number}: a mark of the page names the programs that it is about")
                page.update({program: given["reason"] for program in programs})
            else:
                mark = (given["reason"], programs)
        elif line.lstrip().startswith("<!--") and "not run" in line:
            wrong.append(f"{name}:{number}: no mark that can be read")
    every = [command for block in found for command in block.commands]
    wrong += [f"{name}: the page's mark names {one}, and no block calls it" for one in page if not any(c.calls(one) for c in every)]
    for block in found:
        idle = [one for one in block.not_run if not any(command.calls(one) for command in block.commands)]
        wrong += [f"{name}:{block.line}: the mark names {one}, and the block does not call it" for one in idle]
    return found, wrong


def verbs() -> dict[str, set[str]]:
    """Of each verb, its options, as the generated page has them; of `` those of all."""
    made: dict[str, set[str]] = {}
    verb = None
    for line in (ROOT / REFERENCE).read_text().split("\n"):
        if heading := re.match(r"^## runyard ?(.*)$", line):
            verb = heading[1]
            made[verb] = set()
        elif verb is not None and re.match(r"^\s+-", line):
            made[verb].update(re.findall(r"(?<![\w-])(--[a-z][a-z0-9-]*|-[a-zA-Z])(?=[\s,=]|$)", line.split("  [")[0]))
    return made


def calls(text: str) -> list[list[str]]:
    """The calls of `runyard` in a command line, each as its words; in a pipe, in `$(…)` and behind another program, too."""
    found = []
    for part in re.split(r"&&|\|\||[|;\n()]|\s--\s(?=runyard )", text.replace("\\\n", " ")):
        words = list(itertools.dropwhile(ASSIGNMENT.match, words_of(part.split(" #")[0])))
        if words and words[0].rsplit("/", 1)[-1] == "runyard":
            found.append(words[1:])
    return found


def unknown(words: list[str], known: dict[str, set[str]]) -> str:
    """What a call says that the program does not know; empty if it knows all."""
    while words and words[0] in known[""]:
        words = words[2:] if words[0] in WITH_VALUE else words[1:]
    names = [word for word in words if not word.startswith("-")]
    if not names:
        wrong = [word for word in words if word.split("=")[0] not in known[""]]
        return f"no option {wrong[0]}" if wrong else ""
    verb = " ".join(names[:2]) if " ".join(names[:2]) in known else names[0]
    if verb not in known:
        return f"no verb {verb}"
    for word in words:
        option = word.split("=")[0].rstrip(".,")
        if re.match(r"^(--[a-z]|-[a-zA-Z]$)", option) and option not in known[verb] | known[""]:
            return f"`runyard {verb}` has no option {option}"
    return ""


def faults() -> list[str]:
    """What is wrong with the commands of all pages, as far as reading tells."""
    known, wrong = verbs(), []
    for name in documents():
        if name == REFERENCE:
            continue
        found, marks = blocks(name)
        wrong += marks
        for block in found:
            for command in block.commands:
                wrong += [f"{name}:{command.line}: {why}" for call in calls(command.text) if (why := unknown(call, known))]
        if name == "CHANGELOG.md":
            continue
        for number, line in enumerate((ROOT / name).read_text().split("\n"), 1):
            for span in SPAN.findall(line):
                if CAN_SHOW_MORE.search(span):
                    continue
                wrong += [f"{name}:{number}: {why}" for call in calls(span) if (why := unknown(call, known))]
    return wrong
