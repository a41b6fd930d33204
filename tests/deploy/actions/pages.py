"""Does the page of each action tell what its action.yml has? The tables of inputs and outputs are made of it; the rights are
those of the workflow's policy; each message in the table of errors is one that a program of ours has; and the workflows of
all documents name only inputs, outputs and actions that there are.

    pages.py [--update]    writes the tables
"""

import json
import pathlib
import re
import subprocess
import sys
import textwrap

import yaml
from in_documents import BLOCK

ROOT = pathlib.Path(__file__).resolve().parents[3]
ACTIONS = ROOT / "config/actions"
OURS = "OWNER/runyard/"
TABLE = r"(?<=^## {heading}\n)\n(?:(?:\|[^\n]*|None\.)\n)*"
ROW = re.compile(r"^\|(.*?)(?<!\\)\|(.*?)(?<!\\)\|(.*)\|$", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
SAID = re.compile(r"""(?:fail \d |::error::)['"]?([^'"\n]*)""")
"""What the actions' scripts say of errors."""
SPOKEN = ("config/actions/program", "config/actions/*/run", "src/cli/**/*.rs", "src/core/**/*.rs")
"""Where the words of errors are."""


def load(text):
    return yaml.safe_load(text)


def cell(text):
    return str(text).replace("|", "\\|")


def inputs(action):
    rows = ["| input | what it is | default |", "|---|---|---|"]
    for name, one in action.get("inputs", {}).items():
        default = "required" if one.get("required") else f"`{one['default']}`" if one.get("default") else "empty"
        rows.append(f"| `{name}` | {cell(one['description'])} | {cell(default)} |")
    return rows


def outputs(action):
    rows = ["| output | what it is |", "|---|---|"]
    rows += [f"| `{name}` | {cell(one['description'])} |" for name, one in action.get("outputs", {}).items()]
    return rows if len(rows) > 2 else ["None."]


def with_tables(page, action):
    """The page with the tables that the action has by now."""
    for heading, rows in (("Inputs", inputs(action)), ("Outputs", outputs(action))):
        wanted = "\n" + "\n".join(rows) + "\n"
        page, found = re.subn(TABLE.format(heading=heading), lambda _, wanted=wanted: wanted, page, flags=re.MULTILINE)
        assert found == 1, f"{found} sections `## {heading}`"
    return page


def section(page, heading):
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no section `## {heading}`"
    return found[1]


def rights(page):
    """Those that the policy of workflows has, no more and no fewer."""
    policy = json.loads((ROOT / "config/iam/workflow.json").read_text())
    listed = [one["Action"] for one in policy["Statement"]]
    has = {action for one in listed for action in ([one] if isinstance(one, str) else one)}
    told = {span for span in SPAN.findall(section(page, "Permissions")) if re.match(r"^(dynamodb|sqs):", span)}
    return [f"the policy of workflows has {sorted(has - told)}, the page {sorted(told - has)}"] if told != has else []


def messages(page, spoken):
    """What the page says that a program says, and none does; and what the action's scripts say and the page does not."""
    rows = ROW.findall(section(page, "Errors"))[2:]
    told = {span for row in rows for span in SPAN.findall(row[1])}
    assert told, "the table of errors has no message"
    wrong = [f"nobody says `{message}`" for message in sorted(told) if message not in spoken]
    scripts = "".join(path.read_text() for path in [ACTIONS / "program", *ACTIONS.glob("*/run")])
    said = [one for one in SAID.findall(joined(scripts)) if one != "$2"]
    assert len(said) >= 5, said
    return wrong + [f"no row of errors for: {one}" for one in said if not any(message in one for message in told)]


def joined(text):
    """A program's text whose messages are on one line each."""
    return re.sub(r"\\\n\s*", "", text)


def steps(document):
    """Every step of a document that uses an action of ours."""
    if isinstance(document, dict):
        if isinstance(document.get("uses"), str) and document["uses"].startswith(OURS):
            yield document
        document = list(document.values())
    if isinstance(document, list):
        for one in document:
            yield from steps(one)


def in_documents():
    """What is wrong with the steps in documents; and how many there are."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], check=True, capture_output=True, text=True
    ).stdout.split()
    wrong, seen = [], 0
    for name in listed:
        for block in BLOCK.finditer((ROOT / name).read_text()):
            text = textwrap.dedent(block[2])
            if OURS not in text:
                continue
            for step in steps(load(text)):
                path = ROOT / step["uses"].removeprefix(OURS).partition("@")[0] / "action.yml"
                if not path.exists():
                    wrong.append(f"{name}: there is no {step['uses']}")
                    continue
                action = load(path.read_text())
                given = set(step.get("with", {}))
                needed = {one for one, input_ in action["inputs"].items() if input_.get("required")}
                wrong += [f"{name}: {path.parent.name} has no input {one}" for one in sorted(given - set(action["inputs"]))]
                wrong += [f"{name}: {path.parent.name} needs {one}" for one in sorted(needed - given)]
                used = re.findall(rf"steps\.{re.escape(step.get('id', '-'))}\.outputs\.([\w-]+)", text)
                wrong += [f"{name}: {path.parent.name} has no output {one}" for one in used if one not in action.get("outputs", {})]
                seen += 1
    return wrong, seen


def main(update):
    wrong, seen = in_documents()
    spoken = "".join(path.read_text() for pattern in SPOKEN for path in sorted(ROOT.glob(pattern)))
    spoken = joined(spoken)
    for path in sorted(ACTIONS.glob("*/action.yml")):
        page = path.with_name("README.md")
        name = page.relative_to(ROOT)
        assert page.exists(), f"{name} is missing"
        text, action = page.read_text(), load(path.read_text())
        made = with_tables(text, action)
        if update:
            page.write_text(made)
        elif made != text:
            wrong.append(f"{name}: its tables are not those of {path.name}: .ci/actions --update")
        examples = [block[2] for block in BLOCK.finditer(text) if f"{OURS}config/actions/{path.parent.name}@" in block[2]]
        if not any(re.search("^jobs:", example, re.MULTILINE) for example in examples):
            wrong.append(f"{name}: no whole workflow uses it")
        wrong += [f"{name}: {why}" for why in rights(made) + messages(made, spoken)]
    for fault in wrong:
        print(f"actions: {fault}", file=sys.stderr)
    if not wrong:
        print(f"the pages of the actions tell what the actions have, and so do {seen} steps in documents")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] == ["--update"]))
