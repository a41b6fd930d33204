"""A stand-in for the few GitHub calls a runner's registration needs. Counts what it was asked; can be out of order."""

import base64
import itertools
import json
import re
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class GitHub:
    """Serves on loopback until closed."""

    def __init__(self):
        self.out, self.asked, self.minted = False, [], set()
        self.labels_out = False
        """Whether no runner's labels can be set."""
        self.labelled: list[int] = []
        """The runners whose labels were set."""
        self.run_status: dict[str, str] = {}
        self.packages: list[dict] = []
        """What the list of runner packages has."""
        self.runners: dict[int, dict] = {}
        self.numbers = itertools.count(1)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def mint(self, kind: str) -> str:
        secret = f"{kind}-SECRET-{next(self.numbers):06d}"
        self.minted.add(secret)
        return secret

    def runner(self, number: int) -> dict | None:
        """A runner that is known, by its number."""
        return self.runners.get(number)

    def register(self, name: str, labels: list[str], status: str = "online") -> int:
        """What an agent's `config.sh` comes to; the runner's number."""
        number = next(self.numbers)
        self.runners[number] = {
            "id": number,
            "name": name,
            "os": "linux",
            "status": status,
            "busy": False,
            "labels": custom(labels),
        }
        return number

    def answer(self, method: str, path: str, body: dict) -> tuple[int, object]:
        """The status and body for one call."""
        self.asked.append(f"{method} {path}")
        if self.out:
            return 503, {"message": "Service unavailable"}
        route = path.split("?")[0]
        token = re.search(r"/actions/runners/(registration|remove)-token$", route)
        if method == "POST" and token:
            until = datetime.now(timezone.utc) + timedelta(hours=1)
            return 201, {"token": self.mint(token[1]), "expires_at": until.isoformat(timespec="milliseconds")}
        if method == "POST" and route.endswith("/actions/runners/generate-jitconfig"):
            number = self.register(body["name"], body.get("labels", []), "offline")
            config = base64.b64encode(self.mint("jit").encode()).decode()
            return 201, {"runner": self.runners[number], "encoded_jit_config": config}
        if method == "GET" and route.endswith("/actions/runners"):
            listed = list(self.runners.values())
            return 200, {"total_count": len(listed), "runners": listed}
        if method == "GET" and route.endswith("/actions/runners/downloads"):
            return 200, self.packages
        runner = re.search(r"/actions/runners/(\d+)(/labels)?$", route)
        if runner:
            return self.answer_of(int(runner[1]), method + (runner[2] or ""), body)
        run = re.search(r"/actions/runs/([^/]+)$", route)
        if method == "GET" and run:
            status = self.run_status.get(run[1], "in_progress")
            conclusion = "success" if status == "completed" else None
            return 200, {"id": run[1], "status": status, "conclusion": conclusion, "run_attempt": 1}
        return 404, {"message": "Not Found"}

    def answer_of(self, number: int, call: str, body: dict) -> tuple[int, object]:
        """The same for a call about one runner."""
        known = self.runners.get(number)
        if known is None or (call == "PUT/labels" and self.labels_out):
            return 404, {"message": "Not Found"}
        if call == "DELETE":
            if known["busy"]:
                return 422, {"message": f"Runner \"{known['name']}\" is still running a job"}
            self.runners.pop(number, None)
            return 204, None
        if call == "PUT/labels":
            known["labels"] = custom(body["labels"])
            self.labelled.append(number)
            return 200, {"total_count": len(known["labels"]), "labels": known["labels"]}
        return (200, known) if call == "GET" else (404, {"message": "Not Found"})


def custom(labels: list[str]) -> list[dict]:
    return [{"id": number, "name": label, "type": "custom"} for number, label in enumerate(labels, 1)]


def handler(github: GitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, reply = github.answer(self.command, self.path, json.loads(raw) if raw else {})
            text = b"" if reply is None else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PUT = serve

        def log_message(self, *_) -> None:
            """Quiet."""

    return Handler
