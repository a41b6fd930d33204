"""The page on made yards (made.py): empty, small, failed, and 500 machines with 300 requests. What is on top, what links
where, what the address holds, what a refresh costs, and what axe-core says of the tree that a screen reader gets."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import browser
from browser import Browser, Trace
from made import Server, Yard

HERE = Path(__file__).resolve().parent
SETUP = HERE.parents[1] / "engines/setup"
LONGEST_TASK = 50
"""Milliseconds of processor for one task of the page's thread (Chromium calls a longer one a long task)."""
REFRESH = 300 * 1024
"""Bytes of an answer, the first one included."""
ONE_CHANGE = 4 * 1024
"""Bytes of an answer after one row changed."""
ATTEMPTS = 3

ROWS = "document.querySelectorAll('#{} tr').length"
TEXT = "document.getElementById('{}').innerText"


class Look:
    """A browser on one made yard."""

    def __init__(self, page: Browser, axe: str, wrong: list[str]) -> None:
        self.page, self.axe, self.wrong = page, axe, wrong
        self.checks = (HERE / "checks.js").read_text()
        self.server: Server | None = None

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    def open(self, yard: Yard, query: str = "") -> Server:
        """Serves a yard and shows it."""
        if self.server:
            # No page of before may still ask.
            self.page.open("about:blank")
            self.page.wait("the page before to go", "location.href === 'about:blank'")
            self.server.end()
        self.server = Server(yard)
        self.page.size(1280, 900)
        self.page.open(f"{self.server.url}/{query}")
        there = f"location.origin === {json.dumps(self.server.url)} && !!document.getElementById('totals')?.textContent"
        self.page.wait("the first answer", there)
        return self.server

    def settled(self, what: str, table: str, rows: int) -> None:
        self.page.wait(what, f"{ROWS.format(table)} === {rows}")

    def text(self, name: str) -> str:
        return self.page.run(TEXT.format(name))

    def outline(self, name: str) -> None:
        """Edges, contrast and axe-core, in both schemes, wide and narrow."""
        for scheme in ("light", "dark"):
            self.page.scheme(scheme)
            for width in (1280, 390):
                self.page.size(width, 900)
                where = f"{name}, {scheme}, {width} px"
                self.wrong += [f"{where}: reaches beyond the edge: {each}" for each in self.page.run(f"{self.checks}.wide()")]
                self.wrong += [f"{where}: hard to read: {each}" for each in self.page.run(f"{self.checks}.faint()")["found"]]
        self.page.scheme("light")
        for width in (1280, 390):
            self.page.size(width, 900)
            self.page.run(self.axe)
            found = self.page.run("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`))")
            self.wrong += [f"{name}, {width} px: axe: {each}" for each in found]
        self.page.size(1280, 900)

    def cheap(self, what: str, act: Callable[[], None]) -> None:
        """No task of the page is long; a disturbed attempt is made again, and so is one whose trace lacks tasks."""
        seen = []
        for _ in range(ATTEMPTS):
            with Trace(self.page) as trace:
                act()
            seen.append((trace.tasks, round(trace.longest)))
            if trace.tasks > 5 and trace.longest <= LONGEST_TASK:
                return
        self.wrong.append(f"{what}: tasks seen, and milliseconds of processor of the longest: {seen}")

    def empty(self) -> None:
        """A first step instead of heads without rows."""
        self.open(Yard())
        self.check(self.page.run("document.title") == "Runyard", "an empty yard has a number in its title")
        for name, said in (("verdict", "empty yard"), ("pools-note", "runyard apply"), ("requests-note", "No active requests"), ("machines-note", "no instances")):
            self.check(said in self.text(name), f"empty: {name} does not say {said!r}: {self.text(name)!r}")
        heads = self.page.run("[...document.querySelectorAll('thead')].filter((head) => head.checkVisibility()).length")
        self.check(heads == 0, f"empty: {heads} tables without rows are shown")
        self.outline("empty")

    def well(self) -> None:
        """A small yard in which nothing is wrong says so in one line."""
        yard = Yard(machines=6, requests=3, classes=2)
        yard.lists["pools"].append(yard.lists["pools"][0] | {"class": "smal", "desired": None, "min": None, "max": None, "live": 0})
        self.open(yard)
        self.settled("the requests", "request-rows", 3)
        self.check(self.text("verdict").startswith("All is well"), f"small: {self.text('verdict')}")
        self.check("6 instances of at most" in self.text("totals"), f"small: {self.text('totals')}")
        of = {name: sum(1 for machine in yard.lists["machines"] if machine["class"] == name) for name in ("small", "large")}
        for count in of.values():
            said = f"costs ${0.4032 * count:.2f} an hour"
            self.check(said in self.text("pools"), f"small: the pools do not say {said!r}: {self.text('pools')!r}")
        self.check("smal\n" not in self.text("pools"), "a class without a pool record is drawn as a pool")
        self.check(self.page.run("document.querySelectorAll('.trend path').length") == 3, "small: no trends")
        links = {
            "a run": ("#request-rows th a", "https://github.com/acme/a-service-0/actions/runs/70000000000/attempts/1"),
            "an instance": ("#machines a[href^='https:']", "https://eu-central-1.console.aws.amazon.com/ec2/home?region=eu-central-1#InstanceDetails:instanceId=i-0"),
        }
        for what, (selector, address) in links.items():
            found = self.page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((link) => link.href)")
            self.check(any(each.startswith(address) for each in found), f"{what} links to {found[:2]}")
        self.outline("small")

    def refused(self) -> None:
        """A slip of who asked is no failure of the yard: amber, counted as refused, below what waits, and folded."""
        yard = Yard(machines=6, requests=4, waiting=1, failed=1, classes=2)
        yard.lists["pools"][1]["paused"] = False
        yard.lists["requests"][0]["message"] = "UnknownClass: there is no class smal"
        self.open(yard)
        self.settled("all but the refused one", "request-rows", 3)
        self.check(self.text("verdict") == "Working, with waits or limits", f"refused: {self.text('verdict')}")
        for said in ("1 request refused for what was asked", "1 request waiting"):
            self.check(said in self.text("problems"), f"refused: it does not say {said!r}: {self.text('problems')!r}")
        self.check("1 refused ▸" in self.text("phases"), f"refused: it is not folded: {self.text('phases')!r}")
        self.check(self.page.run("document.title") == "(1 waiting) Runyard", "refused: the title counts it as failed")

    def failed(self) -> None:
        """What waits and what failed is on top, in the title, and said first."""
        yard = Yard(machines=40, requests=100, waiting=5, failed=3, classes=5, githubDown=True)
        self.open(yard)
        self.settled("what waits and failed", "request-rows", 8)
        phases = self.page.run("[...document.querySelectorAll('#request-rows tr')].map((row) => row.children[2].textContent.trim())")
        self.check(phases == ["Pending"] * 5 + ["Failed"] * 3, f"failed: on top is {phases}")
        self.check(self.page.run("document.title") == "(5 waiting, 3 failed) Runyard", f"failed: the title is {self.page.run('document.title')!r}")
        self.check("92 ready ▸" in self.text("phases"), f"failed: the ready requests are not folded: {self.text('phases')!r}")
        for said in ("Something is wrong", "5 requests waiting, the oldest for", "3 requests failed", "GitHub does not answer", "large is paused", "gpu are held back"):
            self.check(said in self.text("verdict") + self.text("problems"), f"failed: it does not say {said!r}")
        bar = self.page.run("(() => { const bar = document.querySelector('#pools .bar'); return [bar.className, bar.querySelectorAll('i').length, bar.ariaLabel]; })()")
        self.check(bar[0] == "bar full" and bar[1] == 2 and "room for 0" in bar[2], f"failed: a pool at its max is drawn as {bar}")
        part = self.page.run("(() => { const bar = document.querySelectorAll('#pools .bar')[1]; return [...bar.querySelectorAll('span')].reduce((sum, part) => sum + part.offsetWidth, 0) / bar.clientWidth; })()")
        self.check(0.1 < part < 0.3, f"failed: a bar of 8 of 58 is {part:.2f} full")
        stamps = self.page.run("document.body.innerText.match(/\\d{4}-\\d\\d-\\d\\dT/g)")
        self.check(not stamps, f"failed: it shows {stamps}")
        titles = self.page.run("[...document.querySelectorAll('#request-rows time')].every((time) => time.title.includes(time.dateTime))")
        self.check(titles, "failed: a relative time has no exact one in its title")
        for selector, list_name, row in (("#request-rows tr:nth-child(2) a", "requests", 1), ("#problems a", "requests", 4), ("#pools tr:nth-child(2) a", "pools", 1)):
            self.page.run(f"document.querySelector({json.dumps(selector)}).focus()")
            text = self.page.run("document.activeElement.textContent")
            one, name = yard.lists[list_name][row], {"requests": "request", "pools": "class"}[list_name]
            yard.change(list_name, one[name], message=f"another message of {selector}")
            self.page.wait("the change", f"document.body.innerText.includes({json.dumps(f'another message of {selector}')})")
            still = self.page.run("[document.activeElement.tagName, document.activeElement.textContent.slice(0, 80)]")
            self.check(still == ["A", text], f"failed: a change takes the keyboard from {selector} to {still}")
        self.outline("failed")

    def address(self) -> None:
        """What is looked at is in the address, and comes back from it."""
        self.open(Yard(machines=40, requests=30, waiting=2, classes=3), "?class=large&q=service-1&span=1800&phases=Ready")
        self.page.wait("the filters", "document.getElementById('class').value === 'large'")
        values = self.page.run("['q', 'class', 'span'].map((id) => document.getElementById(id).value)")
        self.check(values == ["service-1", "large", "1800"], f"address: the filters are {values}")
        shown = self.page.run("[...document.querySelectorAll('#request-rows tr')].map((row) => row.textContent)")
        self.check(shown and all("large" in row and "service-1" in row for row in shown), f"address: it shows {shown}")
        self.page.run("document.getElementById('clear').click()")
        self.page.wait("the address without filters", "location.search === '?span=1800'")
        self.page.run("document.querySelector('#pools th a').click()")
        self.page.wait("the class of a pool that was clicked", "location.search.includes('class=small')")
        self.page.run("history.back()")
        self.page.wait("the way back", "!location.search.includes('class') && document.getElementById('class').value === ''")
        self.page.run("(() => { const sort = document.getElementById('msort'); sort.value = 'deadline'; sort.dispatchEvent(new Event('change')); })()")
        first = "document.querySelector('#machines summary').textContent"
        self.page.wait("the machine whose deadline is first", f"{first} === 'i-00000000000000000'")

    def large(self) -> None:
        """500 machines and 300 requests: no long task, small answers, only the changed row drawn."""
        yard = Yard(machines=500, requests=300, waiting=40, failed=3, classes=7)
        server: list[Server] = []

        def opened() -> None:
            server[:] = [self.open(yard, "?phases=Ready")]
            self.settled("500 machines", "machines", 500)
            self.settled("300 requests", "request-rows", 300)

        self.cheap("large, opening", opened)
        self.check(max(server[0].sent) < REFRESH, f"large: an answer has {max(server[0].sent)} B")

        def heard(least: int) -> None:
            before, end = len(server[0].sent), time.monotonic() + 600
            while len(server[0].sent) < before + least and time.monotonic() < end:
                time.sleep(0.1)

        self.page.run(
            "window.touched = new Set(); new MutationObserver((all) => { for (const one of all) {"
            " if (one.target.closest) touched.add(one.target.closest('#machines tr')); } })"
            ".observe(document.getElementById('machines'), {subtree: true, childList: true, attributes: true})"
        )
        far = yard.lists["machines"][1]["id"]

        def refreshed() -> None:
            yard.change("machines", far, uses=yard.lists["machines"][1]["uses"] + 1)
            heard(2)

        self.page.run("scrollTo(0, 0)")
        self.cheap("large, a refresh", refreshed)
        self.check(max(server[0].sent[-2:]) < ONE_CHANGE, f"large: one change costs {server[0].sent[-2:]} B")
        touched = self.page.run("[...touched].filter(Boolean).map((row) => row.item.id)")
        self.check(touched == [far], f"large: one machine changed, drawn again are {touched[:5]}, {len(touched)} in all")
        yard.remove("machines", far)
        self.settled("one machine less", "machines", 499)

        def search(text: str) -> Callable[[], None]:
            script = f"(() => {{ const q = document.getElementById('q'); q.value = {json.dumps(text)}; q.dispatchEvent(new Event('input')); }})()"

            def act() -> None:
                self.page.run(script)
                expected = 499 if not text else None
                self.page.wait("what is searched for", f"{ROWS.format('machines')} {'=== 499' if expected else '< 100'}")

            return act

        self.cheap("large, a search", search("service-3 "))
        self.cheap("large, the end of a search", search(""))
        self.cheap("large, another order", lambda: self.page.run(
            "(() => { const sort = document.getElementById('msort'); sort.value = sort.value ? '' : 'state'; sort.dispatchEvent(new Event('change')); })()"
        ) or heard(1))

    def blindness(self) -> None:
        """That a long task and a fault of the tree would be seen."""
        self.open(Yard())
        seen = []
        # As for the others: on a busy machine the browser may hand over a trace without its last tasks.
        for _ in range(ATTEMPTS):
            with Trace(self.page) as trace:
                self.page.run("(() => { let sum = 0; for (let n = 0; n < 4e8; n += 1) sum += n % 7; return sum; })()")
            seen.append(trace.longest)
            if trace.longest > LONGEST_TASK:
                break
        self.check(seen[-1] > LONGEST_TASK, f"a busy page has {seen} ms as its longest tasks")
        self.page.run("document.body.append(document.createElement('button'))")
        self.page.run(self.axe)
        found = self.page.run("axe.run(document).then((r) => r.violations.map((v) => v.id))")
        self.check("button-name" in found, f"axe finds {found} and no button without a name")


def look(home: Path) -> int:
    """Looks at all of them."""
    where = subprocess.run([sys.executable, str(SETUP), "--where", "axe"], check=True, capture_output=True, text=True).stdout.strip()
    axe = (Path(where).parent / "package/axe.min.js").read_text()
    wrong: list[str] = []
    page = Browser(browser.root(), home)
    try:
        one = Look(page, axe, wrong)
        for part in ("empty", "well", "refused", "failed", "address", "large"):
            getattr(one, part)()
            wrong += [f"{part}: the browser complains: {each}" for each in page.complaints]
            page.complaints.clear()
        one.blindness()
    finally:
        page.end()
    for problem in wrong:
        print(f"page: {problem}", file=sys.stderr)
    print(f"page: made yards were looked at, {len(wrong)} wrong")
    return 1 if wrong else 0
