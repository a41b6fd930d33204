"""Is every alert whole? A summary, a description, a runbook section that exists, a test that it fires and one that it
does not; every metric that rules and dashboards name is one of the operator's; a rule is about one yard, a namespace and
a job; and nothing that the operator exports is shown nowhere."""

import json
import re
import sys
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[1]
ROOT = CHART.parents[1]
NAME = re.compile(r"\brunyard_[a-z0-9_]+\b")
SUFFIX = re.compile(r"_(bucket|count|sum)$")
JOB = '{job="runyard"'


NEUTRAL = {"Live instances", "In use", "Waiting", "Ready"}
"""Numbers of which none is wrong."""


def stats(name: str, board: dict) -> list[str]:
    """A number whose colour never changes; a rate a second, which nobody reads; panels that overlap; no way out."""
    wrong = []
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        title, defaults = panel["title"], panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] == "stat" and title not in NEUTRAL and len(defaults.get("thresholds", {}).get("steps", [])) < 2:
            wrong.append(f"{name}, {title}: no thresholds")
        if defaults.get("unit") == "ops":
            wrong.append(f"{name}, {title}: a rate a second; show it an hour")
        place = panel["gridPos"]
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])):
            if cell in taken or cell[0] > 23:
                wrong.append(f"{name}: {title} and {taken.get(cell)} are at one place")
                break
            taken[cell] = title
    if "Status page" not in {link["title"] for link in board["links"]}:
        wrong.append(f"{name}: no link to the status page")
    return wrong


def carried(rendered: Path) -> int:
    """Whether each alert that the chart renders without an address has its section as text, and no address."""
    rules = [rule for group in yaml.safe_load(rendered.read_text())["groups"] for rule in group["rules"]]
    said = {rule["alert"]: rule["annotations"] for rule in rules if "alert" in rule}
    wrong = [
        name for name, annotations in said.items()
        if "**How bad:**" not in annotations.get("runbook", "") or any("https://github.com/" in text for text in annotations.values())
    ]
    for name in wrong:
        print(f"rules: {name} has no text of the runbook, or an address in its place", file=sys.stderr)
    return 0 if said and not wrong else 1


def main() -> int:
    """Checks."""
    if sys.argv[1:]:
        return carried(Path(sys.argv[1]))
    wrong = []
    groups = [
        group
        for name in ("recording.yaml", "alerts.yaml")
        for group in yaml.safe_load((CHART / "rules" / name).read_text())["groups"]
    ]
    tests = {test["name"] for test in yaml.safe_load((CHART / "ci/alerts-tests.yaml").read_text())["tests"]}
    runbook = (ROOT / "docs/runbook.md").read_text()
    sections = set(re.findall(r"^## (Runyard\w+)$", runbook, re.MULTILINE))
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = [rule for rule in rules if "alert" in rule]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for rule in alerts:
        name, said = rule["alert"], rule["annotations"]
        for key in ("summary", "description"):
            if not said.get(key):
                wrong.append(f"{name} has no {key}")
        if name not in sections:
            wrong.append(f"docs/runbook.md has no section {name}")
        wrong += [f"{name}: no test that it {does}" for does in ("fires", "does not fire") if f"{name} {does}" not in tests]
        if rule["labels"].get("severity") not in ("page", "ticket", "info"):
            wrong.append(f"{name}: severity is neither page nor ticket nor info")
    for section in re.split(r"^## ", runbook, flags=re.MULTILINE)[1:]:
        name = section.split("\n")[0]
        lacks = [part for part in ("**How bad:**", "**Who:**", "**Time left:**") if part not in " ".join(section.split())]
        wrong += [f"docs/runbook.md: {name} lacks {part}" for part in lacks if name.startswith("Runyard")]
    wrong += [f"docs/runbook.md: {extra} is no alert" for extra in sections - {rule["alert"] for rule in alerts}]

    sources = [(ROOT / "src/operator/metrics" / name).read_text() for name in ("families.rs", "machines.rs", "sets.rs")]
    registered = set(NAME.findall("\n".join(sources)))
    texts = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules}
    for path in sorted((CHART / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        for note in board["annotations"]["list"]:
            texts[f"{path.name}, annotation {note['name']}"] = note["expr"]
        wrong += stats(path.name, board)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                texts[f"{path.name}, {panel['title']}, {target['refId']}"] = target["expr"]
    for rule in rules:
        name, text = rule.get("alert") or rule["record"], rule["expr"]
        wrong += [f"{name}: {m[0]} is of any job" for m in NAME.finditer(text) if not text.startswith(JOB, m.end())]
        summed = re.findall(r"\b(?:sum|max|min|count|avg|on|by) ?\((?!namespace, job\b|job\))[^)]*", text)
        wrong += [f"{name}: {found}) mixes yards" for found in summed]
    shown = {SUFFIX.sub("", metric) for text in texts.values() for metric in NAME.findall(text)}
    wrong += [f"{m} is in no rule and no dashboard" for m in sorted(registered - shown)]
    for where, text in texts.items():
        for metric in NAME.findall(text):
            if metric not in registered and SUFFIX.sub("", metric) not in registered:
                wrong.append(f"{where}: no metric is called {metric}")
        wrong += [f"{where}: no rule records {r}" for r in re.findall(r"runyard:[a-z0-9_:]+", text) if r not in recorded]
    for problem in wrong:
        print(f"rules: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
