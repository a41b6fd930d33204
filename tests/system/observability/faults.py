"""Do alerts hold once something is wrong? Two yards of real programs with faults in them, and the rules as they are
shipped, but for time, which goes `FASTER`: windows, waits and ages are that much shorter. What the rules see is what
the operators' metrics show in that fault."""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import verbs  # noqa: E402

FASTER = 30
DEADLINE = 600
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# Which alerts must hold, each by a fault of this file.
WANTED = {
    "RunyardDown": "the operator is gone",
    "RunyardGitHubBudgetLow": "GitHub says that 3 % of the budget are left",
    "RunyardLaunchesHeldBack": "no machine of three classes boots",
    "RunyardMachinesFail": "no machine of three classes boots",
    "RunyardOrphans": "a machine's record was deleted",
    "RunyardPoolCold": "a class that should keep a machine is paused",
    "RunyardRequestsFail": "requests name a class that is not there",
    "RunyardRequestsTimeOut": "requests of a paused class pass their deadline",
    "RunyardRequestsWait": "a request of a paused class waits",
    "RunyardRunnerVersionEndsIn21Days": "GitHub's support of the runner ends in five days",
    "RunyardRunnerVersionEndsIn7Days": "GitHub's support of the runner ends in five days",
    "RunyardTwoLeaders": "two yards are scraped under one name",
    "RunyardUnreadableRecords": "a record was written by hand",
}


def faster(text: str) -> str:
    """The rules in a world where time goes faster; ages that are compared with seconds are shorter as well."""
    def shorter(found: re.Match) -> str:
        seconds = int(found[2]) * UNITS[found[3]] / FASTER
        return f"{found[1]}{max(1, round(seconds))}s"

    text = re.sub(r"^( +for: )(\d+)([smhd])$", shorter, text, flags=re.MULTILINE)
    text = re.sub(r"(\[)(\d+)([smhd])(?=\])", shorter, text)
    waits = "(runyard_oldest_waiting_request_seconds{job=\"runyard\"}) > "
    return re.sub(re.escape(waits) + r"(\d+)", lambda found: f"{waits}{int(found[1]) // FASTER}", text)


class GitHub(http.server.BaseHTTPRequestHandler):
    """A GitHub that is about to end its support of our runner, then nearly used up, and unwell in nearly all else."""

    left = 4900

    def answer(self) -> None:
        ends = (datetime.now(timezone.utc) + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if "/deprecations/" in self.path:
            version = self.path.rsplit("/", 1)[1]
            # What is nearly used up is kept for registrations: the question comes first.
            GitHub.left = 150
            status = 200
            body = {"version": version, "registration_deprecates_at": ends, "runtime_deprecates_at": ends}
        elif run := re.search(r"/actions/runs/(\d+)$", self.path):
            status, body = 200, {"id": int(run[1]), "status": "in_progress", "run_attempt": 1}
        else:
            status, body = 500, {"message": "Server Error"}
        GitHub.left = max(0, GitHub.left - 1)
        said = json.dumps(body).encode()
        self.send_response(status)
        headers = {"limit": 5000, "remaining": GitHub.left, "used": 5000 - GitHub.left, "reset": int(time.time()) + 3000}
        for name, value in headers.items():
            self.send_header(f"x-ratelimit-{name}", str(value))
        self.send_header("x-ratelimit-resource", "core")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_DELETE = do_PUT = answer

    def log_message(self, *_: object) -> None:
        pass


class Yard:
    """A yard of its own, and what people and workflows say to it."""

    def __init__(self, runyard: str, home: Path, settings: dict[str, str], wait, started: list) -> None:
        self.runyard, self.home = runyard, home
        home.mkdir()
        with (home / "up.log").open("w") as log:
            up = [runyard, "up", "--dir", str(home / "yard")]
            environment = os.environ | {"RUNYARD_STAND_IN_PACKAGE": "unpaced"} | settings
            self.process = subprocess.Popen(up, env=environment, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        started.append(self.process)
        log = home / "up.log"
        self.address = wait("an operator", lambda: re.search(r"listen=([\d.:]+)", log.read_text()))[1]
        wait("a yard", lambda: (home / "yard/env").is_file())
        text = (home / "yard/env").read_text()
        self.environment = os.environ | dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
        for name in re.findall(r"^unset (.*)$", text, re.MULTILINE)[0].split():
            self.environment.pop(name, None)

    def say(self, *words: str) -> str:
        return verbs.said([self.runyard, *words], env=self.environment)

    def ask(self, run: int, size: str, *more: str) -> None:
        names = ["--run-id", str(run), "--repository", "demo/app", "--class", size, "--count", "1"]
        self.say("provision", *names, *more)

    def pools(self, *specs: dict) -> None:
        file = self.home / "pools.json"
        usual = {"cpu": 1, "mmem": 1024, "max": 4}
        file.write_text(json.dumps([usual | spec for spec in specs]))
        self.say("apply", "-f", str(file))

    def table(self, python: str, script: str, *words: str) -> None:
        """Does something to the table that only a person by hand does."""
        code = f"import boto3, json, sys; t = boto3.client('dynamodb'); n = sys.argv[1]\n{script}"
        command = [python, "-c", code, self.environment["RUNYARD_TABLE"], *words]
        subprocess.run(command, env=self.environment, check=True, timeout=DEADLINE)


def work(yard: Yard, python: str, wait) -> None:
    """Faults of classes, requests and records."""
    broken = [
        {"resourceClass": f"broken-{n}", "desired": 2, "launch": {"preRunnerScript": "echo no such disk; exit 3"}}
        for n in range(3)
    ]
    yard.pools({"resourceClass": "held", "desired": 1, "paused": True}, {"resourceClass": "keeps", "desired": 1},
               {"resourceClass": "closed", "repositories": ["elsewhere/*"]}, *broken)
    yard.ask(1, "held", "--timeout", "30m")
    yard.ask(2, "closed")
    garbage = {"pk": {"S": "pool#by-hand"}, "sk": {"S": "pool"}, "kind": {"S": "pool"}, "max": {"S": "many"}}
    yard.table(python, "t.put_item(TableName=n, Item=json.loads(sys.argv[2]))", json.dumps(garbage))

    def idle():
        items = json.loads(yard.say("get", "instances", "--class", "keeps", "-o", "json"))["items"]
        return [item for item in items if item["state"] == "idle"]

    machine = wait("an idle machine", idle)[0]
    key = {"pk": {"S": f"instance#{machine['instanceArn']}"}, "sk": {"S": "instance"}}
    yard.table(python, "t.delete_item(TableName=n, Key=json.loads(sys.argv[2]))", json.dumps(key))


def fail(yard: Yard, seen: set[str], run: int) -> None:
    """Requests that fail, one after the other until people are told: how many fall into a window of the rules depends on
    how fast this machine is."""
    if "RunyardRequestsTimeOut" not in seen:
        yard.ask(run, "held", "--timeout", "5s")
    if "RunyardRequestsFail" not in seen:
        yard.ask(run + 1, "closed")


def held(prometheus: str) -> set[str]:
    with urllib.request.urlopen(f"{prometheus}/api/v1/alerts", timeout=DEADLINE) as answer:
        alerts = json.load(answer)["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def provoke(runyard: str, tools: Path, python: str, home: Path, rules: Path, wait, free, started: list) -> int:
    """Breaks two yards and waits for the alerts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), GitHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    token = home / "token"
    token.write_text("ghp_" + "0" * 36)
    token.chmod(0o600)
    unwell = Yard(runyard, home / "unwell", {
        "RUNYARD_GITHUB__TOKEN_FILE": str(token),
        "RUNYARD_GITHUB__API_URL": f"http://127.0.0.1:{server.server_port}",
        "RUNYARD_GITHUB__RUN_POLL": "5s",
        "RUNYARD_AGENT__RUNNER_URL": f"http://127.0.0.1:{server.server_port}/runner.tar.gz",
        "RUNYARD_AGENT__RUNNER_SHA256": "0" * 64,
        "RUNYARD_AGENT__RUNNER_VERSION": "2.330.0",
    }, wait, started)
    yard = Yard(runyard, home / "work", {"RUNYARD_TIMING__ORPHAN": "10s", "RUNYARD_TIMING__RESYNC": "5s"}, wait, started)
    (home / "faster.yaml").write_text(faster(rules.read_text()))
    subprocess.run([tools / "promtool", "check", "rules", home / "faster.yaml"], check=True, stdout=subprocess.DEVNULL)
    target = lambda where, *yards: {"targets": [one.address for one in yards], "labels": {"namespace": where}}
    (home / "faster.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(home / "faster.yaml")],
        "scrape_configs": [{"job_name": "runyard", "static_configs": [
            target("work", yard), target("unwell", unwell), target("both", yard, unwell),
        ]}],
    }))
    address = free()
    with (home / "faster.log").open("w") as log:
        command = [tools / "prometheus", f"--config.file={home}/faster.yml", f"--storage.tsdb.path={home}/faster"]
        started.append(subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log))
    prometheus = f"http://{address}"
    wait("a first look at the rules", lambda: held(prometheus) is not None)
    for run in range(1, 4):
        unwell.ask(run, "small", "--timeout", "30m")
    work(yard, python, wait)
    seen: set[str] = set()
    end = time.monotonic() + DEADLINE
    gone = False
    run = 10
    while time.monotonic() < end and set(WANTED) - seen:
        seen |= held(prometheus)
        if not gone:
            fail(yard, seen, run := run + 2)
        if not gone and not set(WANTED) - seen - {"RunyardDown"}:
            yard.process.send_signal(signal.SIGINT)
            gone = True
        time.sleep(0.5)
    missing = sorted(set(WANTED) - seen)
    for name in missing:
        print(f"observability: {name} does not hold although {WANTED[name]}", file=sys.stderr)
    print(f"observability: {len(WANTED) - len(missing)} of {len(WANTED)} alerts provoked; held besides: {sorted(seen - set(WANTED))}")
    server.shutdown()
    return 1 if missing else 0
