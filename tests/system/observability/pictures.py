"""What the dashboards show: every panel's own queries over a stretch of time, asked of the real Prometheus and drawn. Not
Grafana's drawing, for which there is no package; the data, titles, units and legends are the dashboards'."""

import html
import json
import math
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "page"))
import browser  # noqa: E402  (its directory is known only now)

COLOURS = ["#1f6fc4", "#d9730d", "#2e8b57", "#8e44ad", "#b8860b", "#c0392b", "#16808a", "#7f8c8d", "#5d4037", "#ad1457"]
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 190, 58, 22
STYLE = """
body { margin: 0; padding: 16px; font: 13px system-ui, sans-serif; background: #f5f6f8; color: #1b2430; width: 1148px; }
h1 { font-size: 18px; margin: 0 0 10px; } .grid { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px; }
.panel { background: #fff; border: 1px solid #d5dae1; border-radius: 6px; padding: 8px; overflow: hidden; }
.panel h2 { font-size: 13px; margin: 0 0 4px; } .stat { font-size: 34px; color: #17663a; text-align: center; }
svg { width: 100%; display: block; } ul { list-style: none; margin: 2px 0 0; padding: 0; font-size: 11px; }
li { display: inline-block; margin-right: 10px; } b { display: inline-block; width: 12px; height: 3px; margin-right: 4px; vertical-align: middle; }
"""


def series(prometheus: str, query: str, start: float, end: float) -> list:
    """The answer to a query over time, a sample a second."""
    asked = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": 1})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{asked}", timeout=20) as answer:
        return json.load(answer)["data"]["result"]


def legend(form: str, labels: dict) -> str:
    """A legend as Grafana fills it in."""
    return re.sub(r"{{(\w+)}}", lambda name: labels.get(name[1], ""), form).strip() or "value"


def told(value: float, unit: str) -> str:
    """A number on an axis."""
    if unit == "bytes":
        return f"{value / 1048576:.0f} MiB"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    return f"{value:.3g}"


def chart(lines: list[tuple[str, list]], unit: str, start: float, end: float) -> str:
    """Lines over time."""
    values = [value for _, points in lines for _, value in points]
    top = max(values, default=0) * 1.1 or 1
    def across(at: float) -> float:
        return LEFT + (at - start) / (end - start) * (WIDTH - LEFT)
    def down(value: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - value / top)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}">']
    for share in (0, 0.5, 1):
        y = down(top * share / 1.1)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#e2e6eb"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4}" font-size="11" text-anchor="end" fill="#535f6e">{told(top * share / 1.1, unit)}</text>')
    for share in (0, 0.5, 1):
        anchor = ("start", "middle", "end")[round(share * 2)]
        at = f"{(end - start) * share:.0f} s"
        parts.append(f'<text x="{across(start + (end - start) * share)}" y="{HEIGHT - 5}" font-size="11" text-anchor="{anchor}" fill="#535f6e">{at}</text>')
    for index, (_, points) in enumerate(lines):
        where = " ".join(f"{across(at):.1f},{down(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{where}" fill="none" stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.8"/>')
    return "".join([*parts, "</svg>"])


def panel(prometheus: str, one: dict, start: float, end: float) -> str:
    """One panel with its data."""
    if one["type"] == "row":
        return f'<h1 style="grid-column: span 24; margin: 0">{html.escape(one["title"])}</h1>'
    unit = one["fieldConfig"]["defaults"].get("unit", "short")
    lines = []
    for target in one["targets"]:
        for answer in series(prometheus, re.sub(r"\$\w+", ".*", target["expr"]), start, end):
            points = [(float(at), float(value)) for at, value in answer["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                lines.append((legend(target["legendFormat"], answer["metric"]), points))
    if one["type"] == "stat":
        value = lines[0][1][-1][1] if lines else 0
        body = f'<div class="stat">{told(value, unit)}</div>'
    else:
        lines.sort(key=lambda line: -max(value for _, value in line[1]))
        lines = lines[: len(COLOURS)]
        names = "".join(f'<li><b style="background:{COLOURS[i]}"></b>{html.escape(name)}</li>' for i, (name, _) in enumerate(lines))
        body = chart(lines, unit, start, end) + f"<ul>{names}</ul>"
    place = one["gridPos"]
    return f'<div class="panel" style="grid-column: span {place["w"]}"><h2>{html.escape(one["title"])}</h2>{body}</div>'


def draw(prometheus: str, dashboards: list[Path], start: float, end: float, home: Path, where: Path) -> None:
    """One picture of each dashboard."""
    where.mkdir(parents=True, exist_ok=True)
    page = browser.Browser(browser.root(), home)
    try:
        page.size(1180, 400)
        for path in dashboards:
            board = json.loads(path.read_text())
            panels = "".join(panel(prometheus, one, start, end) for one in board["panels"])
            text = f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><h1>{html.escape(board['title'])}</h1><div class=grid>{panels}</div>"
            (home / "board.html").write_text(text)
            page.open((home / "board.html").as_uri())
            page.wait("the panels", f"document.querySelectorAll('.panel').length === {sum(one['type'] != 'row' for one in board['panels'])}")
            page.picture(where / f"dashboard-{path.stem}.png")
    finally:
        page.end()
