#!/usr/bin/env python3
"""Keeps what has a source elsewhere as its source says: the schema of `config` (config/default.toml), README.md
(the comments of values.yaml), and the chart's copies of the rules and dashboards.

    charts/runyard/ci/generate.py            writes them
    charts/runyard/ci/generate.py --check    says which are not as they should be, exit 1
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
    ("github", "kind"): ["real", "none"],
    ("github", "scope"): ["repository", "organization"],
    ("log", "format"): ["human", "json"],
}
PATTERNS = {
    ("table",): "^[A-Za-z0-9_.-]{3,72}$",
    ("admin", "listen"): "^.+:[0-9]{1,5}$",
    ("github", "api_url"): "^https?://",
    **{("agent", f"{what}sha256{suffix}"): "^([0-9a-f]{64})?$" for what in ("", "runner_") for suffix in ("", "_arm64")},
    **{("agent", f"{what}url{suffix}"): "^(https://.+)?$" for what in ("", "runner_") for suffix in ("", "_arm64")},
}
# Tables of texts, whose names are anybody's.
OPEN = {("agent", "environment")}


def key(path: tuple[str, ...], value: object) -> dict:
    """The schema of one key of the configuration, by its default."""
    if path in OPEN:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if isinstance(value, dict):
        properties = {name: key((*path, name), inner) for name, inner in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if path in CHOICES:
        return {"type": "string", "enum": CHOICES[path]}
    if path in PATTERNS:
        return {"type": "string", "pattern": PATTERNS[path]}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    if isinstance(value, float):
        return {"type": "number"}
    if isinstance(value, list):
        return {"type": "array"}
    if DURATION.fullmatch(value):
        return {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
    return {"type": "string"}


def schema() -> str:
    """values.schema.json with the part `config` as config/default.toml has it."""
    whole = json.loads((CHART / "values.schema.json").read_text())
    defaults = tomllib.loads((ROOT / "config/default.toml").read_text())
    whole["properties"]["config"] = key((), defaults)
    return json.dumps(whole, indent=2) + "\n"


def readme() -> str:
    """README.md, from the text before its table and the comments of values.yaml."""
    path: list[str] = []
    said: list[str] = []
    rows = []
    for line in (CHART / "values.yaml").read_text().splitlines():
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


def made() -> dict[Path, str]:
    """Every file that has a source elsewhere, with what it should hold."""
    files = {CHART / "values.schema.json": schema(), CHART / "README.md": readme()}
    for name in ("recording.yaml", "alerts.yaml"):
        files[CHART / "rules" / name] = (ROOT / "config/prometheus" / name).read_text()
    for dashboard in sorted((ROOT / "config/grafana").glob("*.json")):
        files[CHART / "dashboards" / dashboard.name] = dashboard.read_text()
    return files


def main() -> int:
    """Writes, or checks."""
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
