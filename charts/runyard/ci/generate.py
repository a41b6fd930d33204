#!/usr/bin/env python3
"""Keeps what has a source elsewhere as its source says: the part `config` of checks.json and the keys of `config` that
values.yaml shows commented out (config/default.toml), values.schema.json (checks.json without what the chart checks
itself, in words), README.md (the comments of values.yaml), and runbook.yaml (docs/runbook.md).

    charts/runyard/ci/generate.py            writes them
    charts/runyard/ci/generate.py --check    says which are not as they should be, exit 1
    charts/runyard/ci/generate.py --shown    prints values.yaml with every key that it shows commented out set
"""

import json
import re
import sys
import tomllib
from pathlib import Path

CHART = Path(__file__).resolve().parents[1]
ROOT = CHART.parents[1]
DURATION = re.compile(r"\d+(ms|s|m|h)")
CHOICES = {
    ("compute", "kind"): ["ec2", "none"],
    ("queue", "kind"): ["sqs", "memory"],
    ("interruptions", "rebalance"): ["ignore", "last", "end"],
    ("github", "kind"): ["real", "none"],
    ("github", "scope"): ["repository", "organization"],
    ("log", "format"): ["human", "json"],
}
# With what is right, for people.
PATTERNS = {
    ("table",): ("^[A-Za-z0-9_.-]{3,72}$", "write 3 to 72 of letters, digits, _, - and ."),
    ("admin", "listen"): ("^.+:[0-9]{1,5}$", "write an address and a port, for example 0.0.0.0:8080"),
    ("github", "api_url"): ("^https?://", "write https://api.github.com, or https://HOST/api/v3 of a GitHub Enterprise Server"),
    **{
        ("agent", f"{what}sha256{suffix}"): ("^([0-9a-f]{64})?$", "write the 64 hexadecimal digits of the file's SHA-256")
        for what in ("", "runner_") for suffix in ("", "_arm64")
    },
    **{
        ("agent", f"{what}url{suffix}"): ("^(https://.+)?$", "write an address that begins with https://")
        for what in ("", "runner_") for suffix in ("", "_arm64")
    },
}
# Tables of texts, whose names are anybody's.
OPEN = {("agent", "environment"), ("sharing", "teams")}
# Tables of tables, whose names are anybody's.
TABLES = {("sharing", "priorities"), ("sharing", "quotas")}
TIME = (r"^\d+(ms|s|m|h)$", "write a number and a unit (ms, s, m, h), for example 15s or 20m")
# An App's id is a number to everybody, and a client id is none.
EITHER = {("github", "app_id")}
BEGIN = "  # The other keys with their defaults; what is set here goes into the operator's file. From config/default.toml.\n"
LOG = "  # log, beside its format above:"
END = "  # End of config/default.toml.\n"


def key(path: tuple[str, ...], value: object) -> dict:
    """The schema of one key of the configuration, by its default."""
    if path in OPEN:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if path in TABLES:
        return {"type": "object", "additionalProperties": {"type": "object"}}
    if isinstance(value, dict):
        properties = {name: key((*path, name), inner) for name, inner in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if path in CHOICES:
        return {"type": "string", "enum": CHOICES[path]}
    if path in PATTERNS:
        return {"type": "string", "pattern": PATTERNS[path][0], "right": PATTERNS[path][1]}
    if path in EITHER:
        return {"type": ["string", "integer"]}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    if isinstance(value, float):
        return {"type": "number"}
    if isinstance(value, list):
        return {"type": "array"}
    if DURATION.fullmatch(value):
        return {"type": "string", "pattern": TIME[0], "right": TIME[1]}
    return {"type": "string"}


def checks() -> dict:
    """checks.json with the part `config` as config/default.toml has it."""
    whole = json.loads((CHART / "checks.json").read_text())
    defaults = tomllib.loads((ROOT / "config/default.toml").read_text())
    whole["properties"]["config"] = key((), defaults)
    return whole


def plain(node: object) -> object:
    """A schema without what templates/validate.yaml checks: Helm would say a pattern where a person wants an example,
    and not which keys there are."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    ours = {"pattern", "right", *(["type"] if "right" in node else [])}
    return {
        name: plain(inner) for name, inner in node.items()
        if name not in ours and (name, inner) != ("additionalProperties", False)
    }


def commented() -> str:
    """The keys of config/default.toml as values, commented out, with its comments; without those that are set."""
    lines, section, said, skip = [], "", [], {("", "table"), ("log", "format")}
    for line in (ROOT / "config/default.toml").read_text().split("\n\n", 1)[1].splitlines():
        if heading := re.match(r"\[(\w+)\]$", line):
            section, said = heading[1], []
            lines.append(f"  # {section}:" if section != "log" else LOG)
        elif line.startswith("#"):
            said.append(line.removeprefix("#").strip())
        elif field := re.match(r"(\w+) = (.*)$", line):
            name, value = field.groups()
            if (section, name) not in skip:
                lines += [f"  #   # {each}" for each in said] + [f"  #   {name}: {value}"]
            said = []
    return "\n".join(lines) + "\n"


def values() -> str:
    """values.yaml with the keys of the configuration as they are."""
    head, _, rest = (CHART / "values.yaml").read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + commented() + END + tail


def shown() -> str:
    """values.yaml with every key set that it shows commented out, so that a key which nobody knows is seen."""
    text = values()
    block = re.sub(r"^  # (  # .*)?", lambda found: "  " if not found[1] else "  # ", commented(), flags=re.MULTILINE)
    block = block.replace(LOG.replace("  # ", "  ") + "\n", "")
    filter_line = re.search(r"^    filter: .*\n", block, re.MULTILINE)[0]
    block = block.replace(filter_line, "")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    tail = re.sub(r"^# (pools:|  .*|- .*)$", r"\1", tail.replace("pools: []\n", ""), flags=re.MULTILINE)
    return head + filter_line + block + tail


def readme() -> str:
    """README.md, from the text before its table and the comments of values.yaml."""
    path: list[str] = []
    said: list[str] = []
    rows = []
    for line in values().splitlines():
        comment = re.match(r" *# (-- )?(.*)", line)
        if comment:
            said = [comment[2]] if comment[1] else [*said, comment[2]] if said else []
            continue
        field = re.match(r"( *)([A-Za-z0-9_]+):(.*)", line)
        if not field:
            said = []
            continue
        path = [*path[: len(field[1]) // 2], field[2]]
        if said:
            default = field[3].strip() or "see below"
            rows.append(f"| `{'.'.join(path)}` | `{default}` | {' '.join(said)} |")
        said = []
    head, _, _ = (CHART / "README.md").read_text().partition("## Values\n")
    return head + "## Values\n\n| value | default | is |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def runbook() -> str:
    """The section of each alert, without its links, as values of an annotation."""
    sections = re.findall(r"^## (Runyard\w+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = ["# The sections of docs/runbook.md, for the annotation `runbook`. Generated: `.ci/chart --update`."]
    for name, text in sections:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<!--.*?-->\n", "", text, flags=re.DOTALL))
        # Prometheus reads an annotation as a template.
        text = text.strip().replace("{{", '{{"{{"}}')
        lines += [f"{name}: |", *(f"  {line}".rstrip() for line in text.split("\n"))]
    return "\n".join(lines) + "\n"


def made() -> dict[Path, str]:
    """Every file that has a source elsewhere, with what it should hold."""
    whole = checks()
    return {
        CHART / "checks.json": json.dumps(whole, indent=2) + "\n",
        CHART / "values.schema.json": json.dumps(plain(whole), indent=2) + "\n",
        CHART / "values.yaml": values(),
        CHART / "README.md": readme(),
        CHART / "runbook.yaml": runbook(),
    }


def main() -> int:
    """Writes, or checks."""
    if sys.argv[1:] == ["--shown"]:
        print(shown())
        return 0
    check = sys.argv[1:] == ["--check"]
    stale = [path for path, text in made().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not as its source says: run .ci/chart --update", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made()[path])
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
