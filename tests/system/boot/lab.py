"""What the laboratory is made of: a yard with its operator, EC2, GitHub and the metadata service on
one side, machines that really boot on the other. What it mounts and starts goes with its namespaces.
"""

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import imds
import network
from machines import FIRST, HERE, Image, Machine, Machines
from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.responses.general import General
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import verbs  # noqa: E402

TESTS = Path(__file__).resolve().parents[2]
LAB = Path("/srv/lab")
YARD = Path("/srv/yard")
# Where the runners of the stand-in's package look for their program too.
RUNYARD = "/srv/runyard/bin/runyard"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REPOSITORY = "demo/app"
REGION = "eu-central-1"
WORLD = f"{HERE}1"
GITHUB = "http://localhost:8080"
# Where machines without an agent fetch one.
AGENT = "http://localhost:8081/runyard-agent"
# What the operator's file has jobs told, and the image's two files.
VARIABLES = {"LAB_TOLD": 'by the "operator" for $5', "NO_PROXY": "169.254.169.254,localhost"}
# When a wait is given up, in seconds. These and the operator's deadlines are the real time's, which a busy machine stretches:
# no check waits for one of them, but those of a machine's end by one.
DEADLINE = 600
SETTINGS = {
    "COMPUTE__KIND": "ec2", "QUEUE__KIND": "sqs", "ADMIN__LISTEN": "127.0.0.1:0",
    "TIMING__CREATED": "9m", "TIMING__CLAIMED": "5m", "TIMING__CLEANUP": "5m", "TIMING__END": "10s", "TIMING__GRACE": "5s",
    "TIMING__HEARTBEAT": "1s", "TIMING__STALE": "2m", "TIMING__AGENT_POLL": "200ms", "TIMING__RESYNC": "5s", "TIMING__REANNOUNCE": "10s",
    "TIMING__LEASE": "5s", "TIMING__ORPHAN": "30s", "LIMITS__LOOKS_PER_SECOND": "100",
}
# What an image of ours has beside the packages of its root.
IMAGE = {
    # The kernel has one of these, and it is not the laboratory's to set; a container hides parts of /proc, of which a
    # machine of one's own has all, as mounts of a job's own need it; its number of the boot is another for units with a
    # view of /proc of their own; cloud-init knows EC2 by this number; and no udev makes devices.
    "etc/systemd/system/lab.service": """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mkdir -m 700 /run/lab; cd /run/lab; mkdir proc sys; mount -t proc proc proc; mount -t sysfs sysfs sys; \\
for name in kernel/core_pattern kernel/dmesg_restrict kernel/io_uring_disabled fs/inotify/max_user_instances; do \\
place=/proc/sys/$name; test -e $place || continue; cat $place >$(basename $name); mount --bind $(basename $name) $place; done; \\
while umount /proc/sys/kernel/random/boot_id 2>/dev/null; do :; done; \\
mount -o remount,rw /sys; mkdir /sys/hypervisor; echo ec2e1916-9099-7caf-fd21-012345abcdef >/sys/hypervisor/uuid; \\
mount -o remount,ro /sys; mkdir -p /dev/net; rm -f /dev/net/tun; \\
mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/net/tun c 10 200; mknod -m 666 /dev/kvm c 10 232; \\
mknod /dev/loop-control c 10 237; for number in 0 1 2 3 4 5 6 7; do mknod /dev/loop$number b 7 $number; done'
[Install]
WantedBy=sysinit.target
""",
    # The other addresses that cloud-init would try are names, for which there is nobody here to ask.
    "etc/cloud/cloud.cfg.d/99-lab.cfg": """datasource_list: [Ec2]
datasource: {Ec2: {metadata_urls: ["http://169.254.169.254"]}}
network: {config: disabled}
# Of a login and its locale there is nothing in these images.
users: []
ssh_authorized_keys: []
cloud_config_modules: [runcmd]
""",
    "etc/hosts": f"{WORLD} localhost\n",
    # Who knows no name.
    "etc/resolv.conf": f"nameserver {WORLD}\n",
    "etc/environment": f'PATH="{PATH}:/snap/bin"\nLAB_LOGIN="by the image"\n',
    "etc/runyard/job.env": "LAB_IMAGE=by the image too\nACTIONS_RUNNER_HOOK_JOB_COMPLETED=/bin/false\n",
    # The table is not AWS's.
    "etc/systemd/system/runyard-agent.service.d/lab.conf": f"[Service]\nEnvironment=AWS_ENDPOINT_URL_DYNAMODB=http://{WORLD}:8000\n",
}


class Broken(Exception):
    """The laboratory itself did not do what it should."""


class Failed(Exception):
    """A check did."""


def wait(what: str, until, limit: float = DEADLINE):
    """What `until` answers once it is true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise Failed(f"gave up waiting for {what} after {limit:.0f} s")


def must(holds: object, what: str) -> None:
    if not holds:
        raise Failed(what)


def build(programs: dict[str, str]) -> None:
    """What is this laboratory's alone."""
    for words in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "mode=0755", "none", "/run"],
                  ["-t", "tmpfs", "-o", "mode=0755,size=4g", "none", "/srv"]):
        subprocess.run(["mount", *words], check=True)
    # Those of this network and these groups; where it can be written, nspawn waits for an udev.
    subprocess.run(["umount", "--recursive", "--lazy", "/sys"], check=True)
    subprocess.run(["mount", "-t", "sysfs", "-o", "ro", "none", "/sys"], check=True)
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    leaf = Path("/sys/fs/cgroup/lab")
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text("0")
    layer = LAB / "image"
    for place, name in (("srv/runyard/bin/runyard", "runyard"), ("usr/local/bin/runyard-agent", "runyard-agent")):
        (layer / place).parent.mkdir(parents=True)
        shutil.copy(programs[name], layer / place)
        (layer / place).chmod(0o755)
    write(layer, IMAGE)
    units = layer / "etc/systemd/system"
    for target, unit in (("sysinit.target", "/etc/systemd/system/lab.service"), ("multi-user.target", "/lib/systemd/system/systemd-networkd.service"),
                         ("network-online.target", "/lib/systemd/system/systemd-networkd-wait-online.service")):
        wants = units / f"{target}.wants"
        wants.mkdir(exist_ok=True)
        (wants / Path(unit).name).symlink_to(unit)
    Path(RUNYARD).parent.mkdir(parents=True)
    os.link(layer / RUNYARD.lstrip("/"), RUNYARD)
    YARD.mkdir(mode=0o700)


def write(root: Path, files: dict[str, str]) -> None:
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)


def connect() -> None:
    """The network of the machines, and on this side of it all that they may reach."""
    for words in (["link", "set", "lo", "up"], ["link", "add", "yard", "type", "bridge"], ["address", "add", f"{WORLD}/24", "dev", "yard"],
                  ["address", "add", "fd51::1/64", "dev", "yard", "nodad"], ["address", "add", "169.254.169.254/32", "dev", "yard"],
                  ["address", "add", "fd00:ec2::254/128", "dev", "yard", "nodad"], ["link", "set", "yard", "up"]):
        subprocess.run(["ip", *words], check=True)
    network.serve("yard", HERE, FIRST)


class World:
    """What is there without us: GitHub, AWS, and the network to them."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen] = []
        self.metadata = imds.Service()
        self.yards: list[Machines] = []
        self.runs = 0
        self.lock = threading.Lock()

    def start(self, name: str, *words: str, **more) -> subprocess.Popen:
        log = (LAB / f"{name}.log").open("ab")
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more)
        self.processes.append(child)
        return child

    def log(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (LAB / f"{name}.log").read_text(errors="replace")
        return ""

    def serve(self) -> None:
        connect()
        self.metadata.serve()
        base = {"PATH": PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8"}
        endpoint = self.cloud()
        # Its own operator has a table to itself and nothing to do.
        agent = {"RUNYARD_AGENT": str(LAB / "image/usr/local/bin/runyard-agent"), "RUNYARD_STAND_IN_PACKAGE": "unpaced,libicu"}
        up = self.start("world", RUNYARD, "up", "--dir", str(YARD / "data"), env=base | agent, cwd=YARD)

        def is_up() -> bool:
            if up.poll() is not None:
                raise Broken(f"runyard up ended with {up.returncode}: {self.log('world')[-500:]}")
            return "Runyard is up" in self.log("world")
        wait("runyard up", is_up)
        told = dict(re.findall(r"^export (\w+)=(.*)$", (YARD / "data/env").read_text(), re.MULTILINE))
        self.key = (told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"])
        (LAB / "table.port").write_text(told["AWS_ENDPOINT_URL"].rpartition(":")[2])
        self.start("forward", "/usr/bin/python3", "-I", str(TESTS / "system/escape/forward.py"), f"8080={YARD}/data/github/api.port",
                   f"8000={LAB}/table.port")
        wait("the world's ports", lambda: "ready" in self.log("forward"))
        program = LAB / "image/usr/local/bin"
        files = functools.partial(http.server.SimpleHTTPRequestHandler, directory=program)
        threading.Thread(target=imds.Server((WORLD, 8081), files).serve_forever, daemon=True).start()
        own = hashlib.sha256((program / "runyard-agent").read_bytes()).hexdigest()
        with urllib.request.urlopen(f"{GITHUB}/_runner/package.tar.gz", timeout=DEADLINE) as answer:
            digest = hashlib.sha256(answer.read()).hexdigest()
        settings = SETTINGS | {"GITHUB__API_URL": GITHUB, "GITHUB__TOKEN_FILE": str(YARD / "data/github/github-token"),
                               "AGENT__RUNNER_URL": f"{GITHUB}/_runner/package.tar.gz", "AGENT__RUNNER_SHA256": digest,
                               "AGENT__RUNNER_VERSION": "2.999.0", "AGENT__URL": AGENT, "AGENT__SHA256": own,
                               "AGENT__URL_ARM64": AGENT, "AGENT__SHA256_ARM64": "0" * 64, "AGENT__ENVIRONMENT": json.dumps(VARIABLES)}
        self.environment = base | {f"RUNYARD_{name}": value for name, value in settings.items()} | {
            "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": self.key[0],
            "AWS_SECRET_ACCESS_KEY": self.key[1], "AWS_ENDPOINT_URL": endpoint}
        self.environment |= {name: told["AWS_ENDPOINT_URL"] for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS")}
        self.ec2 = boto3.client("ec2", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")
        self.subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        self.ami = next(image["ImageId"] for image in self.ec2.describe_images()["Images"] if image.get("Architecture") == "x86_64")

    def cloud(self) -> str:
        """EC2 and SQS by moto, in this process: of a machine's console it has a sample, we have the console."""
        def get_console_output(answer):
            id = answer._get_param("InstanceId")
            machine = next((yard.all[id] for yard in self.yards if id in yard.all), None)
            told = machine.console_at_ec2(answer._get_bool_param("Latest")) if machine else None
            # As EC2: no output where nothing is posted.
            posted = {} if told is None else {"Output": base64.b64encode(told).decode()}
            return ActionResult({"InstanceId": id, "Timestamp": utcnow(), **posted})
        General.get_console_output = get_console_output
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        return "http://{}:{}".format(*server.get_host_and_port())

    def github(self, path: str, body: dict | None = None) -> dict:
        token = (YARD / "data/github/github-token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{GITHUB}{path}", data=data, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def next_run(self) -> int:
        with self.lock:
            self.runs += 1
            run = self.runs
        self.github("/_workflow/runs", {"repository": REPOSITORY, "run_id": run, "open": True})
        return run


class Yard:
    """A table, its operator, and its machines, each class with an image of its own."""

    def __init__(self, world: World, table: str, kinds: dict[str, tuple[Image, dict]], settings: dict[str, str]) -> None:
        self.world, self.table = world, table
        self.environment = world.environment | {"RUNYARD_TABLE": table} | {f"RUNYARD_{name}": text for name, text in settings.items()}
        pools = [{"resourceClass": name, "cpu": 2, "mmem": 4096, "max": 2, **more,
                  "launch": {"ami": world.ami, "architecture": "x86_64", "subnetIds": [world.subnet], **more.get("launch", {})}}
                 for name, (_, more) in kinds.items()]
        (YARD / f"{table}.json").write_text(json.dumps(pools))
        self.say("init")
        self.say("apply", "-f", str(YARD / f"{table}.json"))
        images = {name: image for name, (image, _) in kinds.items()}
        self.machines = Machines(world.ec2, table, images, LAB / "machines", world.metadata, world.key)
        world.yards.append(self.machines)
        self.operator = self.operate()
        self.jobs = 0

    def operate(self) -> subprocess.Popen:
        return self.world.start(f"operator-{self.table}", RUNYARD, "operator", env=self.environment, cwd=YARD)

    def say(self, *words: str) -> str:
        done = verbs.run([RUNYARD, *words], env=self.environment, cwd=YARD)
        if done.returncode != 0:
            raise Failed(f"runyard {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def record(self, machine: Machine) -> dict:
        return json.loads(self.say("describe", "instance", machine.id, "-o", "json"))

    # What a workflow does.

    def ask(self, kind: str, *more: str) -> int:
        """A run that asks for a machine of a class."""
        run = self.world.next_run()
        self.say("provision", "--run-id", str(run), "--repository", REPOSITORY, "--class", kind, "--count", "1", *more)
        return run

    def launched(self, kind: str) -> Machine:
        """The class's newest machine, once it is there."""
        return wait(f"a machine of {kind}", lambda: next((one for one in reversed(list(self.machines.all.values())) if one.kind == kind), None))

    def provision(self, kind: str, *more: str) -> tuple[int, Machine]:
        """A run with a machine of a class."""
        run = self.ask(kind, "--wait", *more)
        told = json.loads(self.say("get", "instances", "-o", "json"))["items"]
        held = [item["instanceId"] for item in told if (item.get("claim") or {}).get("runId") == str(run) or item.get("runId") == str(run)]
        must(len(held) == 1, f"run {run} holds {held}: {json.dumps(told)[:600]}")
        return run, self.machines.all[held[0]]

    def job(self, run: int, *steps: str, meanwhile=lambda: None, expect: str = "success") -> str:
        """What a job of these steps says."""
        name = f"job {time.monotonic_ns()}"
        github = self.world.github
        github(f"/_workflow/runs/{run}/jobs", {"jobs": [{"name": name, "runs_on": [str(run)], "steps": steps}], "open": True})
        meanwhile()

        def done() -> dict | None:
            return next((job for job in github(f"/_workflow/runs/{run}")["jobs"] if job["name"] == name and job["conclusion"]), None)
        seen = wait(f"a job of run {run}", done)
        must(seen["conclusion"] == expect, f"a job of run {run} ends as {seen['conclusion']}: {(seen['log'] or '')[-600:]}")
        return seen["log"] or ""

    def release(self, run: int) -> None:
        self.say("release", "--run-id", str(run), "--repository", REPOSITORY, "--wait")
        with contextlib.suppress(urllib.error.HTTPError):
            self.world.github(f"/_workflow/runs/{run}/cancel", {})
