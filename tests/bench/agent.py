"""The agent and three shell loops, at the same time, each against its own machine's records in one table of a test engine,
through a proxy that counts the calls. CPU time is the kernel's, so a busy machine slows both and changes neither."""

import base64
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse

import boto3
from nacl.public import PublicKey, SealedBox

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TABLE = "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
RUN_SH = "#!/bin/sh\necho 'Listening for Jobs'\nexec sleep 100000\n"
LOOPS = {
    # Is there a claim? As often as the agent asks.
    "claim": ("get-item --consistent-read", "instance", "", 1),
    # I am alive. As often as the agent says so.
    "beat": (
        "update-item",
        "agent",
        """--update-expression 'SET heartbeatAt = :t ADD heartbeatSeq :o' --expression-attribute-values '{":t":{"S":"now"},":o":{"N":"1"}}'""",
        10,
    ),
    # Is my time over?
    "guard": ("get-item --projection-expression threshold", "instance", "", 10),
}


class Counting(http.server.BaseHTTPRequestHandler):
    """Hands each call on to the engine and counts it for the machine whose key is in it."""

    protocol_version = "HTTP/1.1"
    engine = ""
    calls: dict[tuple[str, str], int] = {}
    lock = threading.Lock()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "?").rpartition(".")[2]
        whose = next((name for name in ("agent", "loops") if arn(name).encode() in body), "other")
        with self.lock:
            self.calls[whose, operation] = self.calls.get((whose, operation), 0) + 1
        upstream = http.client.HTTPConnection(urllib.parse.urlparse(self.engine).netloc, timeout=30)
        upstream.request("POST", self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        upstream.close()
        try:
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            # Whoever asked was ended meanwhile.
            self.close_connection = True

    def log_message(self, *_):
        pass


def machine(name):
    return {"agent": "i-0000000000000a9e7", "loops": "i-000000000000100b5"}[name]


def arn(name):
    return f"arn:aws:ec2:local:000000000000:instance/{machine(name)}"


def image(file, name, **more):
    """A golden record as that of this machine."""
    text = (GOLDEN / f"{file}.json").read_text()
    old = json.loads((GOLDEN / "instance-claimed.json").read_text())
    text = text.replace(old["instanceArn"]["S"], arn(name)).replace(old["instanceId"]["S"], machine(name))
    item = json.loads(text)
    item.pop("registration", None)
    item.pop("registrationExpiresAt", None)
    return item | {key: {"S": value} for key, value in more.items()}


def sealed(public, name, claim):
    box = {
        "claimId": claim,
        "seq": 1,
        "url": "https://github.example.com/octo/app",
        "token": "none",
        "runnerName": f"runyard-{claim}",
        "labels": ["1"],
        "runnerGroup": "",
        "expiresAt": "2100-01-01T00:00:00Z",
    }
    return base64.b64encode(SealedBox(PublicKey(base64.b64decode(public))).encrypt(json.dumps(box).encode())).decode()


def package(work):
    """A runner that listens and does nothing."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in (("config.sh", "#!/bin/sh\necho {} > .runner\n"), ("run.sh", RUN_SH)):
            info = tarfile.TarInfo(name)
            info.mode, info.size = 0o755, len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    digest = hashlib.sha256(data.getvalue()).hexdigest()
    (work / "package").mkdir(parents=True)
    (work / "package" / f"{digest}.tar.gz").write_bytes(data.getvalue())
    return digest


def wait_for(what, look, within=60):
    end = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > end:
            sys.exit(f"in vain: {what}")
        time.sleep(0.05)
    return found


class Agent:
    def __init__(self, program, scratch, endpoint):
        work = scratch / "work"
        config = scratch / "agent.toml"
        config.write_text(
            f'table = "{TABLE}"\ninstance_id = "{machine("agent")}"\ninstance_arn = "{arn("agent")}"\n'
            f'state_dir = "{scratch / "state"}"\nwork_dir = "{work}"\npower.off = "exit"\n'
            f'[runner]\nurl = "http://127.0.0.1:1/runner.tar.gz"\nsha256 = "{package(work)}"\n'
        )
        self.log = open(scratch / "agent.log", "wb")
        environment = KEYS | {"AWS_ENDPOINT_URL": endpoint, "PATH": os.environ["PATH"]}
        self.process = subprocess.Popen(
            [program, "--config", config], env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self.seen, self.stop = set(), threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        """Which children it ever has; one that lives less than a look is not seen, a script is."""
        while not self.stop.wait(0.005):
            for task in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children"):
                try:
                    self.seen |= set(task.read_text().split())
                except OSError:
                    pass

    def figures(self):
        # The clock of all threads that this process has or had (clock_getcpuclockid(3)).
        cpu = time.clock_gettime((~self.process.pid << 3) | 2)
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        memory = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM") or line.startswith("VmRSS")}
        return {"cpu": cpu, "rss": memory["VmRSS"] / 1024, "peak": memory["VmHWM"] / 1024, "spawned": len(self.seen)}


class Loops:
    """Three shells; each counts its calls and ends when the stop file is there."""

    def __init__(self, scratch, endpoint):
        self.scratch, self.shells = scratch, []
        scratch.mkdir()
        environment = KEYS | {"AWS_ENDPOINT_URL": endpoint, "PATH": os.environ["PATH"], "HOME": str(scratch)}
        for name, (verb, kind, more, pause) in LOOPS.items():
            key = json.dumps({"pk": {"S": f"{kind}#{arn('loops')}"}, "sk": {"S": kind}})
            command = f"aws dynamodb {verb} --table-name {TABLE} --key '{key}' {more} --output json >/dev/null"
            loop = f"while [ ! -e stop ]; do {command} && echo >>{name}; sleep {pause}; done"
            self.shells.append(subprocess.Popen(["bash", "-c", loop], cwd=scratch, env=environment))

    def end(self):
        """CPU of the shells and all they waited for, the largest of their processes, and how many calls came through."""
        (self.scratch / "stop").touch()
        cpu, peak = 0.0, 0
        for shell in self.shells:
            _, _, used = os.wait4(shell.pid, 0)
            cpu += used.ru_utime + used.ru_stime
            peak = max(peak, used.ru_maxrss / 1024)
        return cpu, peak, {name: len((self.scratch / name).read_text()) if (self.scratch / name).exists() else 0 for name in LOOPS}


def counted(whose):
    with Counting.lock:
        return {operation: n for (of, operation), n in Counting.calls.items() if of == whose}


def phase(agent, scratch, endpoint, seconds):
    with Counting.lock:
        Counting.calls.clear()
    before, began = agent.figures(), time.monotonic()
    loops = Loops(scratch, endpoint)
    time.sleep(seconds)
    after, took = agent.figures(), time.monotonic() - began
    ours = counted("agent")
    cpu, peak, calls = loops.end()
    took_loops = time.monotonic() - began
    hour, hour_loops = 3600 / took, 3600 / took_loops
    return {
        "agent": {
            "CPU, % of a core": 100 * (after["cpu"] - before["cpu"]) / took,
            "RSS, MiB": after["rss"],
            "processes spawned / h": (after["spawned"] - before["spawned"]) * hour,
            "reads / h": ours.get("GetItem", 0) * hour,
            "writes / h": ours.get("UpdateItem", 0) * hour,
            "other calls / h": sum(n for o, n in ours.items() if o not in ("GetItem", "UpdateItem")) * hour,
        },
        "loops": {
            "CPU, % of a core": 100 * cpu / took_loops,
            "RSS, MiB": peak,
            "processes spawned / h": 2 * sum(calls.values()) * hour_loops,
            "reads / h": (calls["claim"] + calls["guard"]) * hour_loops,
            "writes / h": calls["beat"] * hour_loops,
            "other calls / h": 0.0,
        },
        "peak": after["peak"],
        "cpu per call": {"agent": (after["cpu"] - before["cpu"]) / max(1, sum(ours.values())), "loops": cpu / max(1, sum(calls.values()))},
    }


def show(name, figures):
    print(f"\n{name}\n\n| measure | agent | three loops | ratio |\n|---|---|---|---|")
    for measure, ours in figures["agent"].items():
        theirs = figures["loops"][measure]
        ratio = f"{theirs / ours:,.0f} ×" if ours and measure[0] in "CR" else "–"
        print(f"| {measure} | {ours:,.3g} | {theirs:,.3g} | {ratio} |" if ours < 1000 and theirs < 1000 else f"| {measure} | {ours:,.0f} | {theirs:,.0f} | {ratio} |")
    per = figures["cpu per call"]
    print(f"| CPU a call, ms | {1000 * per['agent']:.3g} | {1000 * per['loops']:.3g} | {per['loops'] / per['agent']:,.0f} × |")


def measured(program, seconds, scratch, endpoint, dynamodb):
    put = lambda item: dynamodb.put_item(TableName=TABLE, Item=item)
    for name in ("agent", "loops"):
        put(image("agent-born", name))
        put(image("instance-created-warm", name))
    status = lambda: dynamodb.get_item(TableName=TABLE, Key={"pk": {"S": f"agent#{arn('agent')}"}, "sk": {"S": "agent"}})["Item"]
    says = lambda word: status() if status().get("signal", {}).get("S") == word else None
    agent = Agent(program, scratch / "agent", endpoint)
    try:
        public = wait_for("UD_OK", lambda: says("UD_OK"))["publicKey"]["S"]
        put(image("instance-created-warm", "agent") | {"state": {"S": "idle"}})
        idle = phase(agent, scratch / "idle", endpoint, seconds)
        claimed = image("instance-claimed", "agent")
        claim = claimed["claimId"]["S"]
        put(claimed | {"registration": {"S": sealed(public, "agent", claim)}})
        wait_for("UD_REG_OK", lambda: says("UD_REG_OK"))
        put(image("instance-running", "agent", claimId=claim))
        time.sleep(2)
        running = phase(agent, scratch / "running", endpoint, seconds)
    finally:
        agent.stop.set()
        for child in agent.seen:
            # The runner outlives an agent that is told to stop; it is this process's to end.
            try:
                marked = pathlib.Path(f"/proc/{child}/environ").read_bytes()
            except OSError:
                continue
            if f"RUNYARD_MACHINE={machine('agent')}".encode() in marked:
                os.kill(int(child), signal.SIGKILL)
        agent.process.terminate()
        agent.process.wait(30)
    size = os.path.getsize(program) / 1e6
    print(f"agent: {size:.1f} MB on disk, peak RSS {running['peak']:.1f} MiB; {seconds:.0f} s each phase, {os.cpu_count()} cores")
    show("Idle in the pool", idle)
    show("While a job runs", running)


def main(program, seconds):
    if not os.access(program, os.X_OK):
        sys.exit(f"there is no {program}: cargo build --locked --profile agent -p runyard-agent")
    engine = subprocess.Popen([ROOT / "tests/engines/serve", "ministack"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    scratch = pathlib.Path(tempfile.mkdtemp())
    try:
        Counting.engine = engine.stdout.readline().strip()
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{proxy.server_port}"
        dynamodb = boto3.client("dynamodb", endpoint_url=Counting.engine, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        keys = [("pk", "HASH"), ("sk", "RANGE")]
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": n, "KeyType": t} for n, t in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        (scratch / "agent").mkdir()
        measured(program, seconds, scratch, endpoint, dynamodb)
    finally:
        engine.stdin.close()
        engine.wait()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
