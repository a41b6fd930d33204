"""A status as the operator answers it, of any size and kind, and a server of it: the page's own files under the page's
own policy. What is sent is what changed, as `src/operator/status/changes.rs` does it."""

import base64
import gzip
import hashlib
import json
import re
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

ADMIN = Path(__file__).resolve().parents[3] / "src/operator/admin"
LISTS = {"pools": "class", "machines": "id", "requests": "request", "events": "id"}
PHASES = ("created", "claimed", "running", "cleaning", "pooled")


def page() -> tuple[str, str]:
    """The document as `admin/page.rs` puts it together, and its policy."""
    source = (ADMIN / "page.rs").read_text()
    parts = re.findall(r'include_str!\("(page/[^"]+)"\)|^    "([^"]*)",$', source.split("concat!(")[1].split(");")[0], re.MULTILINE)
    text = "".join((ADMIN / name).read_text() if name else literal.replace("\\n", "\n") for name, literal in parts)
    policy = re.search(r'"(default-src [^"]+)"', source)[1]
    for tag in ("style", "script"):
        inner = text.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        policy = policy.replace("{}", f"sha256-{digest}", 1)
    return text, policy


def moment(at: datetime, seconds: float = 0) -> str:
    return (at + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Yard:
    """A made status that can be changed."""

    def __init__(self, machines: int = 0, requests: int = 0, waiting: int = 0, failed: int = 0, classes: int = 0, **more) -> None:
        self.at = at = datetime.now(timezone.utc).replace(microsecond=0)
        names = ["small", "large", "gpu", "arm", "build-with-a-rather-long-name-of-40-char", "e2e", "lint"][:classes]
        self.lists: dict[str, list[dict]] = {name: [] for name in LISTS}
        for number in range(machines):
            running = number % 5 < 3
            ready = requests - waiting - failed
            request = f"acme/a-service-{number % 23} run {70000000000 + number % max(ready, 1)}/default/1" if running and ready > 0 else None
            spans = [{"phase": "created", "from": moment(at, -3000 - number)}, {"phase": "pooled", "from": moment(at, -2900 - number)}]
            for use in range(2):
                held = {"request": f"acme/a-service-{use} run {70000001000 + number}/default/1"}
                spans += [{"phase": "claimed", "from": moment(at, -500 + 200 * use), **held}, {"phase": "running", "from": moment(at, -495 + 200 * use), **held},
                          {"phase": "cleaning", "from": moment(at, -380 + 200 * use), **held}, {"phase": "pooled", "from": moment(at, -370 + 200 * use)}]
            if request:
                spans += [{"phase": "claimed", "from": moment(at, -100), "request": request}, {"phase": "running", "from": moment(at, -95), "request": request}]
            last = spans[-1]
            self.lists["machines"].append({
                "id": f"i-0{number:016x}", "class": names[number % len(names)], "region": "eu-central-1", "instanceType": "m7i.2xlarge",
                "usageClass": "spot", "is": last["phase"], "since": last["from"], "until": moment(at, 3600 + number),
                **({"request": request} if request else {}), "signal": "UD_REG_OK", "uses": 2, "spans": spans,
            })
        for number in range(requests):
            phase = "Failed" if number < failed else "Pending" if number < failed + waiting else "Ready"
            key = number - failed - waiting
            self.lists["requests"].append({
                "request": f"acme/a-service-{(key if key >= 0 else number) % 23} run {70000000000 + key if key >= 0 else 71000000000 + number}/default/1",
                "class": names[number % len(names)], "phase": phase, "count": 4, "held": 4 if phase == "Ready" else 0,
                "acceptedAt": moment(at, -120 - number), "deadline": moment(at, 480 - number),
                "readyAt": moment(at, -118 - number) if phase == "Ready" else None,
                "message": {"Ready": "4 of 4 machines are running", "Failed": f"DeadlinePassed: 0 of 4 machines were running at {moment(at, -5)}", "Pending": "waiting for 4 machines"}[phase],
                "waits": ["class small has as many machines as max allows (8)"] if phase == "Pending" else [],
                "expectedAt": moment(at, 60) if phase == "Pending" else None,
                "expected": "of the last 50 requests of its class half took no longer than 4s, nine in ten no longer than 9s" if phase == "Pending" else None,
            })
        for index, name in enumerate(names):
            of = [machine["is"] for machine in self.lists["machines"] if machine["class"] == name]
            have = {phase: of.count(phase) for phase in PHASES}
            self.lists["pools"].append({
                "class": name, "desired": 10, "min": 2, "max": len(of) if index == 0 and of else len(of) + 50, "have": have, "live": len(of),
                "inFlight": 0, "paused": index == 1 and failed > 0, "heldBackSeconds": 95 if index == 2 and failed > 0 else None,
                "message": f"{have['pooled']} idle of 10 wanted",
                "cost": {"hour": f"{0.4032 * len(of):.2f}", "idleHour": f"{0.4032 * have['pooled']:.2f}"} if of else None,
            })
        for number in range(min(50, machines)):
            self.lists["events"].append({
                "id": f"instance#{number} {number}", "at": moment(at, -10 * number), "type": "Warning" if number == 3 else "Normal", "reason": "Claimed",
                "message": f"claimed for run 7, until {moment(at, 600)}", "actor": "operator",
                "subject": f"instance#arn:aws:ec2:eu-central-1:123456789012:instance/i-0{number:016x}",
            })
        steps = 72
        self.head = {
            "at": moment(at), "version": "0.1.0", "table": "runyard", "leader": True, "githubDown": False, "unreadable": 0,
            "remembersSince": moment(at, -7200), "poolsLeftOut": 0, "machinesLeftOut": 0, "requestsLeftOut": 0, "github": "https://github.com",
            "trend": {"stepSeconds": 300, "last": moment(at), "waiting": [number % 7 for number in range(steps)],
                      **{name: [None] * 40 + [machines // 2 + number % 9 for number in range(steps - 40)] for name in ("running", "idle", "starting")}},
        } | more
        self.mark, self.marks, self.gone = 1, {}, {}
        self.lock = threading.Lock()

    def change(self, list_name: str, name: str, **fields) -> None:
        """A row becomes another."""
        with self.lock:
            self.mark += 1
            row = next(row for row in self.lists[list_name] if row[LISTS[list_name]] == name)
            row.update(fields)
            self.marks[list_name, name] = self.mark

    def remove(self, list_name: str, name: str) -> None:
        """A row goes."""
        with self.lock:
            self.mark += 1
            self.lists[list_name] = [row for row in self.lists[list_name] if row[LISTS[list_name]] != name]
            self.gone[list_name, name] = self.mark

    def answer(self, since: int | None) -> dict:
        with self.lock:
            head = self.head | {"at": moment(datetime.now(timezone.utc)), "mark": f"made-{self.mark}"}
            if since is None:
                return head | self.lists
            changed = {
                name: [row for row in rows if self.marks.get((name, row[LISTS[name]]), 0) > since] for name, rows in self.lists.items()
            }
            gone = {name: [key for (of, key), mark in self.gone.items() if of == name and mark > since] for name in LISTS}
            return head | changed | {"gone": gone}


class Server:
    """Serves a made yard on loopback; `sent` is the size of every answer with data."""

    def __init__(self, yard: Yard) -> None:
        server, self.yard, self.sent = self, yard, []
        text, policy = page()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlparse(self.path)
                if url.path == "/status.json":
                    since = parse_qs(url.query).get("since")
                    body = json.dumps(server.yard.answer(int(since[0].split("-")[1]) if since else None), separators=(",", ":")).encode()
                    body = gzip.compress(body, 1)
                    server.sent.append(len(body))
                    self.reply("application/json", body, {"Content-Encoding": "gzip"})
                elif url.path == "/icon.svg":
                    self.reply("image/svg+xml", (ADMIN / "page/icon.svg").read_bytes(), {})
                else:
                    self.reply("text/html; charset=utf-8", text.encode(), {"Content-Security-Policy": policy})

            def reply(self, kind: str, body: bytes, more: dict) -> None:
                self.send_response(200)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def end(self) -> None:
        self.http.shutdown()
        self.http.server_close()
