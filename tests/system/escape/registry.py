"""A registry of container images, as far as `docker pull`, `push` and `login` ask for one (the distribution specification of
the Open Container Initiative): it serves images that are made of this machine's busybox, and takes others.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
import urllib.parse
from pathlib import Path

PROGRAMS = ["sh", "ls", "cat", "echo", "sleep", "id", "wget", "nc", "httpd", "mkdir", "touch", "chmod", "chown", "cp", "mount", "mknod",
            "dd", "ip", "ps", "stat", "grep", "true", "false", "test", "sysctl", "tail", "kill", "env", "date", "rm"]
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
# Who may have what is called `private/...`.
USER = "lab:secret"
SECOND = 1_000_000_000
SERVER = "echo from-service >/tmp/index.html; sleep 1; touch /tmp/ok; exec httpd -f -p 80 -h /tmp"
IMAGES = {
    "lab:1": {"Cmd": ["sh"]},
    "server:1": {"Cmd": ["sh", "-c", SERVER]},
    "private/lab:1": {"Cmd": ["sh"]},
    # Healthy after its second check, if a failure is not the end.
    "checked:1": {"Cmd": ["sh", "-c", SERVER], "Healthcheck": {"Test": ["CMD-SHELL", "test -e /tmp/ok"], "Interval": SECOND // 2}},
}


class Store:
    """All that was made or pushed, by digest, and what tags lead to."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.kinds: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.uploads: dict[str, bytes] = {}

    def keep(self, data: bytes, kind: str = "application/octet-stream") -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[digest], self.kinds[digest] = data, kind
        return digest

    def image(self, name: str, config: dict, layer: bytes) -> None:
        packed = gzip.compress(layer, mtime=0)
        made = {"architecture": "amd64", "os": "linux", "config": config | {"Env": ["PATH=/bin"]}, "created": "2026-01-01T00:00:00Z",
                "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
        text = json.dumps(made).encode()
        described = [{"mediaType": kind, "size": len(data), "digest": self.keep(data)} for kind, data in ((CONFIG, text), (LAYER, packed))]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
        self.tags[name] = self.keep(json.dumps(manifest).encode(), MANIFEST)


def root() -> bytes:
    """A root file system of one program."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("tmp", 0o1777), ("etc", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for name, mode, data in (("bin/busybox", 0o755, Path("/usr/bin/busybox").read_bytes()),
                                 ("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\n")):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name in PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return made.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    store = Store()
    protocol_version = "HTTP/1.1"

    def answer(self, code: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def challenge(self) -> None:
        self.answer(401, b"{}", WWW_Authenticate=f'Bearer realm="http://{self.headers["Host"]}/token",service="lab"')

    def allowed(self, name: str) -> bool:
        """As Docker Hub has it: everybody has a token, which says who they are."""
        token = self.headers.get("Authorization")
        if token == "Bearer known" or (token == "Bearer anonymous" and not name.startswith("private/")):
            return True
        self.challenge()
        return False

    def token(self) -> None:
        given = self.headers.get("Authorization")
        if given not in (None, "Basic " + base64.b64encode(USER.encode()).decode()):
            return self.answer(401, b"{}")
        return self.answer(200, json.dumps({"token": "known" if given else "anonymous"}).encode(), Content_Type="application/json")

    def do_GET(self) -> None:
        if self.path.startswith("/token"):
            return self.token()
        if re.fullmatch(r"/v2/?", self.path):
            return self.answer(200, b"{}") if self.headers.get("Authorization") else self.challenge()
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.+)", self.path)
        if not found or not self.allowed(found[1]):
            return None if found else self.answer(404, b"{}")
        digest = self.store.tags.get(f"{found[1]}:{found[3]}", found[3])
        if (data := self.store.blobs.get(digest)) is None:
            return self.answer(404, b"{}")
        return self.answer(200, data, Content_Type=self.store.kinds[digest], Docker_Content_Digest=digest)

    do_HEAD = do_GET

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().strip(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def do_POST(self) -> None:
        data, name = self.body(), self.path.removeprefix("/v2/").partition("/blobs/")[0]
        if self.allowed(name):
            self.store.uploads[mark := str(len(self.store.uploads))] = data
            self.answer(202, Location=f"/v2/{name}/blobs/uploads/{mark}", Range="0-0")

    def do_PATCH(self) -> None:
        data, mark = self.body(), self.path.rpartition("/")[2]
        self.store.uploads[mark] += data
        self.answer(202, Location=self.path, Range=f"0-{len(self.store.uploads[mark]) - 1}")

    def do_PUT(self) -> None:
        data, path = self.body(), urllib.parse.urlsplit(self.path).path
        if found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            digest = self.store.keep(data, self.headers["Content-Type"])
            self.store.tags[f"{found[1]}:{found[2]}"] = digest
        else:
            digest = self.store.keep(self.store.uploads.pop(path.rpartition("/")[2]) + data)
        self.answer(201, Docker_Content_Digest=digest, Location=path)

    def log_message(self, *_: object) -> None:
        pass


def serve() -> int:
    layer = root()
    for name, config in IMAGES.items():
        Registry.store.image(name, config, layer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
