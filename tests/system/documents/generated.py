"""The reference pages that are made of the program's own tables: its settings, its metrics, and the causes that `runyard
debug` knows. `.ci/docs` compares them, and `.ci/docs --update` writes them. (`docs/reference/cli.md` is made by a test of
the program.)"""

import re
import tomllib
from pathlib import Path

TEXT = r'"((?:[^"\\]|\\.|\\\n)*)"'
CAUSES = "src/core/explain/causes.rs"
DEFAULTS = "config/default.toml"
METRICS = "src/operator/metrics"
METRIC = re.compile(r'"(runyard_\w+)",\s*' + TEXT)
KIND = re.compile(r"\b\w*(Counter|Gauge|Histogram)(?:Vec)?::(?:new|with_opts)\(|\bhistogram\(")
LABELS = re.compile(r'&\[((?:\s*"\w+",?)+)\s*\]|\b(of_class)\b')
NOTE = "This page is made of `{source}`: change that, then run `.ci/docs --update`.\n"


def said(text: str) -> str:
    """A text of the source, as the program has it, in a cell of a table."""
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"').replace("|", r"\|")


def causes(root: Path) -> str:
    """The causes of failures."""
    source = (root / CAUSES).read_text()
    rows = re.findall(r'^    "([\w-]+)": ' + TEXT + r",\s*" + TEXT + r",\s*\[\[", source, re.MULTILINE)
    table = source[source.index("\ncauses! {"):source.index("\n}\n", source.index("\ncauses! {"))]
    assert len(rows) == len(re.findall(r'^    "[\w-]+":', table, re.MULTILINE)) > 20, f"{CAUSES}: the table is read wrongly"
    head = """# Causes of failures

`runyard debug` compares what machines, EC2 and GitHub reported about a failure with the signs of these causes, and
names the first that fits. [troubleshooting.md](../troubleshooting.md) begins with the symptoms instead.

"""
    lines = [f"| `{name}` | {said(why)} | {said(fix)} |" for name, why, fix in rows]
    return head + NOTE.format(source=CAUSES) + "\n".join(["", "| cause | what is wrong | what mends it |", "|---|---|---|", *lines, ""])


def metrics(root: Path) -> str:
    """The metrics."""
    rows = []
    for path in sorted((root / METRICS).glob("*.rs")):
        if path.name.endswith("tests.rs"):
            continue
        source = path.read_text()
        found = list(METRIC.finditer(source))
        for number, one in enumerate(found):
            end = found[number + 1].start() if number + 1 < len(found) else len(source)
            before = [kind for kind in KIND.finditer(source[: one.start()])][-1]
            kind = (before[1] or "Histogram").lower()
            # Up to the end of its own call.
            rest = source[one.end():end].split("?", 1)[0]
            labels = LABELS.search(rest)
            if source[before.end():].startswith("Opts::new(name, help)"):
                # A closure that makes several of the same labels.
                labels = LABELS.search(source[before.end():])
            names = re.findall(r'"(\w+)"', labels[1]) if labels and labels[1] else ["resource_class"] if labels else []
            rows.append((one[1], kind, ", ".join(f"`{name}`" for name in names) or "–", said(one[2])))
    assert len({row[0] for row in rows}) == len(rows) > 25, f"{METRICS}: the tables are read wrongly"
    head = """# Metrics

These are the metrics at `/metrics` of an operator. [contract.md](../contract.md#7-http-of-the-operator) says which of them other
programs may rely on. There are also the process collector's `process_` metrics. Labels are bounded: no ids.

"""
    lines = [f"| `{name}` | {kind} | {labels} | {meaning} |" for name, kind, labels, meaning in sorted(rows)]
    return head + NOTE.format(source=METRICS) + "\n".join(["", "| metric | type | labels | meaning |", "|---|---|---|---|", *lines, ""])


def prose(comment: str) -> str:
    """A comment as Markdown that shows it to the letter; what is between backticks is code there too."""
    parts = re.sub(r"^# ?", "", comment, flags=re.MULTILINE).strip().split("`")
    parts[::2] = [re.sub(r"[\\*_<]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def cell(text: str) -> str:
    """A text of one line, for a table."""
    return text.replace("\n", " ").replace("|", r"\|")


def settings(root: Path) -> str:
    """The operator's settings: a table for each section, a row for each comment with the keys below it."""
    source = (root / DEFAULTS).read_text()
    about, source = source.split("\n\n", 1)
    page = ["# The operator's configuration", prose(about), NOTE.format(source=DEFAULTS).strip()]
    found = 0
    for section in re.split(r"^(?=\[)", source, flags=re.MULTILINE):
        if section.startswith("["):
            page.append(f"## {section.splitlines()[0]}")
        rows = []
        for comment, lines in re.findall(r"((?:^#.*\n)+)((?:^\w+ = .*\n)*)", section, re.MULTILINE):
            pairs = [line.split(" = ", 1) for line in lines.splitlines()]
            if pairs:
                keys, defaults = ("<br>".join(f"`{cell(one)}`" for one in column) for column in zip(*pairs))
                rows.append(f"| {keys} | {defaults} | {cell(prose(comment))} |")
                found += len(pairs)
            else:
                page.append(prose(comment))
        page.append("\n".join(["| key | default | meaning |", "|---|---|---|", *rows]))
    sections = tomllib.loads(source).values()
    wanted = sum(len(one) if isinstance(one, dict) else 1 for one in sections)
    assert found == wanted, f"{DEFAULTS}: {found} keys of {wanted} have a comment above them"
    return "\n\n".join(page) + "\n"


PAGES = {
    "docs/reference/causes.md": causes,
    "docs/reference/configuration.md": settings,
    "docs/reference/metrics.md": metrics,
}


def faults(root: Path, update: bool) -> list[str]:
    """The pages that are not what their source makes; with `update` they are written instead."""
    wrong = []
    for name, make in PAGES.items():
        path, made = root / name, make(root)
        if update:
            path.write_text(made)
        elif not path.is_file() or path.read_text() != made:
            wrong.append(f"{name} is not what its source makes: run .ci/docs --update")
    return wrong
