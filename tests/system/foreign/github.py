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
        self.run_status: dict[str, str] = {}
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
            runner = {
                "id": next(self.numbers),
                "name": body.get("name"),
                "os": "linux",
                "status": "offline",
                "busy": False,
                "labels": [{"id": 1, "name": label, "type": "custom"} for label in body.get("labels", [])],
            }
            return 201, {"runner": runner, "encoded_jit_config": base64.b64encode(self.mint("jit").encode()).decode()}
        if method == "GET" and route.endswith("/actions/runners"):
            return 200, {"total_count": 0, "runners": []}
        if method == "DELETE" and re.search(r"/actions/runners/\d+$", route):
            return 204, None
        run = re.search(r"/actions/runs/([^/]+)$", route)
        if method == "GET" and run:
            status = self.run_status.get(run[1], "in_progress")
            conclusion = "success" if status == "completed" else None
            return 200, {"id": run[1], "status": status, "conclusion": conclusion, "run_attempt": 1}
        return 404, {"message": "Not Found"}


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
