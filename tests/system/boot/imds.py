"""The instance metadata service as machines see it at 169.254.169.254 and fd00:ec2::254: version 2 only, another answer
for each machine, known by the address it asks from. What was asked, and by whom, is kept.
"""

import http.server
import json
import secrets
import socket
import threading

ADDRESSES = (("169.254.169.254", socket.AF_INET), ("fd00:ec2::254", socket.AF_INET6))
TOKEN = "X-aws-ec2-metadata-token"
LIFE = "X-aws-ec2-metadata-token-ttl-seconds"


class Server(http.server.ThreadingHTTPServer):
    """All machines may boot at once. Python's own has only five wait for it, and drops the others."""

    daemon_threads = True
    request_queue_size = 128


class Service:
    """All machines' metadata, as trees: a directory is a dict, a file is text."""

    def __init__(self) -> None:
        self.trees: dict[str, dict] = {}
        self.tokens: set[str] = set()
        # (address, path, status)
        self.asked: list[tuple[str, str, int]] = []

    def serve(self) -> None:
        for address, family in ADDRESSES:
            server = type("OfFamily", (Server,), {"address_family": family})
            handler = type("Handler", (Handler,), {"service": self})
            threading.Thread(target=server((address, 80), handler).serve_forever, daemon=True).start()

    def machine(self, addresses: list[str], tree: dict) -> None:
        for address in addresses:
            self.trees[address] = tree

    def look(self, address: str, path: str) -> str | None:
        """What is at a path below any version of the service's."""
        node: dict | str | None = self.trees.get(address)
        parts = [part for part in path.split("?")[0].split("/") if part]
        if node is None or not parts:
            return "latest\n2021-03-23" if node is not None else None
        for part in parts[1:]:
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        if isinstance(node, dict):
            return "\n".join(f"{name}/" if isinstance(value, dict) else name for name, value in sorted(node.items()))
        return node


class Handler(http.server.BaseHTTPRequestHandler):
    service: Service
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, text: str = "", life: str = "") -> None:
        address = self.client_address[0].removeprefix("::ffff:")
        self.service.asked.append((address, self.path, status))
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if life:
            self.send_header(LIFE, life)
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        life = self.headers.get(LIFE, "")
        if self.path != "/latest/api/token":
            return self.answer(405)
        if not life.isdigit() or not 1 <= int(life) <= 21600:
            return self.answer(400)
        self.service.tokens.add(token := secrets.token_urlsafe(32))
        self.answer(200, token, life)

    def do_GET(self) -> None:
        if self.headers.get(TOKEN) not in self.service.tokens:
            return self.answer(401)
        found = self.service.look(self.client_address[0].removeprefix("::ffff:"), self.path)
        self.answer(404) if found is None else self.answer(200, found)

    def log_message(self, *_: object) -> None:
        pass


def tree(machine: dict) -> dict:
    """Of one machine of EC2's: `id`, `type`, `zone`, `account`, `address`, `mac`, `user_data`, `role`, `key`, `secret`, `spot`."""
    region = machine["zone"][:-1]
    document = {"accountId": machine["account"], "region": region, "instanceId": machine["id"], "instanceType": machine["type"],
                "availabilityZone": machine["zone"], "architecture": "x86_64", "imageId": machine["image"],
                "privateIp": machine["address"], "version": "2017-09-30"}
    credentials = {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": machine["key"], "SecretAccessKey": machine["secret"],
                   "Token": "session", "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": "2099-01-01T00:00:00Z"}
    return {
        "meta-data": {
            "ami-id": machine["image"], "instance-id": machine["id"], "instance-type": machine["type"],
            "instance-life-cycle": "spot" if machine["spot"] else "on-demand",
            "local-ipv4": machine["address"], "local-hostname": "ip-" + machine["address"].replace(".", "-"),
            "placement": {"availability-zone": machine["zone"], "region": region},
            "mac": machine["mac"],
            "network": {"interfaces": {"macs": {machine["mac"]: {"device-number": "0", "mac": machine["mac"],
                                                                 "local-ipv4s": machine["address"]}}}},
            "services": {"partition": "aws", "domain": "amazonaws.com"},
            "iam": {"info": json.dumps({"Code": "Success"}),
                    "security-credentials": {machine["role"]: json.dumps(credentials)}},
        },
        "dynamic": {"instance-identity": {"document": json.dumps(document)}},
        "user-data": machine["user_data"],
    }


def take_back(tree_: dict, when: str) -> None:
    """EC2 announces that it takes the machine back."""
    tree_["meta-data"]["spot"] = {"instance-action": json.dumps({"action": "terminate", "time": when})}
