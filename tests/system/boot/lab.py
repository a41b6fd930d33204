"""The laboratory, as process 1 of namespaces of its own: the yard with its operator, EC2, GitHub and the metadata service on
one side, machines that really boot on the other. It is called by `run`, prints a line for each check, and leaves nothing
behind: what it mounts and starts goes with its namespaces.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import imds
import network
import roots
from machines import FIRST, HERE, Image, Machine, Machines

TESTS = Path(__file__).resolve().parents[2]
LAB = Path("/srv/lab")
YARD = Path("/srv/yard")
# Where the runners of the stand-in's package look for their program too.
RUNYARD = "/srv/runyard/bin/runyard"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REPOSITORY = "demo/app"
REGION = "eu-central-1"
TABLE = "yard"
WORLD = f"{HERE}1"
DEADLINE = int(os.environ.get('DEADLINE', '60'))
SETTINGS = {
    "COMPUTE__KIND": "ec2", "QUEUE__KIND": "sqs", "ADMIN__LISTEN": "127.0.0.1:0",
    "TIMING__CREATED": "60s", "TIMING__CLAIMED": "60s", "TIMING__CLEANUP": "60s", "TIMING__GRACE": "5s", "TIMING__HEARTBEAT": "1s",
    "TIMING__STALE": "30s", "TIMING__AGENT_POLL": "200ms", "TIMING__RESYNC": "5s", "TIMING__REANNOUNCE": "10s",
    "TIMING__LEASE": "5s", "TIMING__ORPHAN": "30s", "LIMITS__LOOKS_PER_SECOND": "100",
}
# What an image of ours has beside the packages of its root.
IMAGE = {
    # The kernel has one of these, and it is not the laboratory's to set; a container hides parts of /proc, of which a
    # machine of one's own has all, as mounts of a job's own need it; and cloud-init knows EC2 by this number.
    "etc/systemd/system/lab.service": """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mkdir -m 700 /run/lab; cd /run/lab; mkdir proc sys; mount -t proc proc proc; mount -t sysfs sysfs sys; \\
for name in core_pattern dmesg_restrict; do cat /proc/sys/kernel/$name >$name; mount --bind $name /proc/sys/kernel/$name; done; \\
mount -o remount,rw /sys; mkdir /sys/hypervisor; echo ec2e1916-9099-7caf-fd21-012345abcdef >/sys/hypervisor/uuid; \\
mount -o remount,ro /sys'
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
    # The table is not AWS's.
    "etc/systemd/system/runyard-agent.service.d/lab.conf": f"[Service]\nEnvironment=AWS_ENDPOINT_URL_DYNAMODB=http://{WORLD}:8000\n",
}


# Not for people: what is in the way of reading.
NOISE = re.compile(r"url_helper|DEBUG|ci-info|POST / HTTP|  OK  ")


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
    raise Failed(f"gave up waiting for {what}")


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
    for place, text in IMAGE.items():
        (layer / place).parent.mkdir(parents=True, exist_ok=True)
        (layer / place).write_text(text)
    units = layer / "etc/systemd/system"
    for target, unit in (("sysinit.target", "/etc/systemd/system/lab.service"), ("multi-user.target", "/lib/systemd/system/systemd-networkd.service"),
                         ("network-online.target", "/lib/systemd/system/systemd-networkd-wait-online.service")):
        wants = units / f"{target}.wants"
        wants.mkdir(exist_ok=True)
        (wants / Path(unit).name).symlink_to(unit)
    Path(RUNYARD).parent.mkdir(parents=True)
    os.link(layer / RUNYARD.lstrip("/"), RUNYARD)
    YARD.mkdir(mode=0o700)


def connect() -> None:
    """The network of the machines, and on this side of it all that they may reach."""
    for words in (["link", "set", "lo", "up"], ["link", "add", "yard", "type", "bridge"], ["address", "add", f"{WORLD}/24", "dev", "yard"],
                  ["address", "add", "fd51::1/64", "dev", "yard", "nodad"], ["address", "add", "169.254.169.254/32", "dev", "yard"],
                  ["address", "add", "fd00:ec2::254/128", "dev", "yard", "nodad"], ["link", "set", "yard", "up"]):
        subprocess.run(["ip", *words], check=True)
    network.serve("yard", HERE, FIRST)


class Lab:
    """A yard whose machines are real ones."""

    def __init__(self, spec: dict) -> None:
        self.spec, self.processes, self.runs, self.jobs = spec, [], 0, 0
        self.environment: dict[str, str] = {}
        self.metadata = imds.Service()
        self.operator: subprocess.Popen | None = None

    def start(self, name: str, *words: str, **more) -> subprocess.Popen:
        log = (LAB / f"{name}.log").open("ab")
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more)
        self.processes.append(child)
        return child

    def log(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (LAB / f"{name}.log").read_text(errors="replace")
        return ""

    # The yard.

    def serve(self) -> None:
        """GitHub, the table, EC2 and its queues; then an operator as a company would have it."""
        connect()
        self.metadata.serve()
        base = {"PATH": PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8"}
        engine = subprocess.Popen([sys.executable, str(TESTS / "engines/serve"), "moto"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=(LAB / "moto.log").open("wb"), text=True, env=os.environ | base)
        self.processes.append(engine)
        # What the world is made of; its own operator has a table to itself and nothing to do.
        agent = {"RUNYARD_AGENT": str(LAB / "image/usr/local/bin/runyard-agent")}
        up = self.start("world", RUNYARD, "up", "--dir", str(YARD / "data"), env=base | agent, cwd=YARD)

        def is_up() -> bool:
            if up.poll() is not None:
                raise Broken(f"runyard up ended with {up.returncode}: {self.log('world')[-500:]}")
            return "Runyard is up" in self.log("world")
        wait("runyard up", is_up)
        told = dict(re.findall(r"^export (\w+)=(.*)$", (YARD / "data/env").read_text(), re.MULTILINE))
        (LAB / "table.port").write_text(told["AWS_ENDPOINT_URL"].rpartition(":")[2])
        self.start("forward", "/usr/bin/python3", "-I", str(TESTS / "system/escape/forward.py"), f"8080={YARD}/data/github/api.port",
                   f"8000={LAB}/table.port")
        wait("the world's ports", lambda: "ready" in self.log("forward"))
        cloud = engine.stdout.readline().strip()
        if not cloud:
            raise Broken(f"moto did not start: {self.log('moto')[-500:]}")
        github = "http://localhost:8080"
        with urllib.request.urlopen(f"{github}/_runner/package.tar.gz", timeout=10) as answer:
            digest = hashlib.sha256(answer.read()).hexdigest()
        self.aws = {"AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
                    "AWS_ACCESS_KEY_ID": told["AWS_ACCESS_KEY_ID"], "AWS_SECRET_ACCESS_KEY": told["AWS_SECRET_ACCESS_KEY"]}
        table = {name: told["AWS_ENDPOINT_URL"] for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS")}
        settings = SETTINGS | {"GITHUB__API_URL": github, "GITHUB__TOKEN_FILE": str(YARD / "data/github/github-token"),
                               "AGENT__RUNNER_URL": f"{github}/_runner/package.tar.gz", "AGENT__RUNNER_SHA256": digest,
                               "AGENT__RUNNER_VERSION": "2.999.0"}
        self.environment = base | self.aws | table | {"AWS_ENDPOINT_URL": cloud, "RUNYARD_TABLE": TABLE}
        self.environment |= {f"RUNYARD_{name}": value for name, value in settings.items()}
        self.ec2 = boto3.client("ec2", endpoint_url=cloud, region_name=REGION, aws_access_key_id="test",
                                aws_secret_access_key="test")
        self.launches()
        self.say("init")
        self.say("apply", "-f", str(YARD / "pools.json"))
        key = (self.aws["AWS_ACCESS_KEY_ID"], self.aws["AWS_SECRET_ACCESS_KEY"])
        self.machines = Machines(self.ec2, TABLE, self.images, LAB / "machines", self.metadata, key)
        self.operate()

    def operate(self) -> None:
        self.operator = self.start("operator", RUNYARD, "operator", env=self.environment, cwd=YARD)

    def launches(self) -> None:
        """The classes, each with an image of its own."""
        subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        amis = [image["ImageId"] for image in self.ec2.describe_images()["Images"] if image.get("Architecture") == "x86_64"]
        base = [LAB / "image", Path(self.spec["root"])]
        kinds = {"one": Image(base, devices=("/dev/fuse", "/dev/net/tun", "/dev/kvm"))}
        self.images, pools = {}, []
        for ami, (name, image) in zip(amis, kinds.items()):
            self.images[ami] = image
            pools.append({"resourceClass": name, "cpu": 2, "mmem": 4096, "max": 2,
                          "launch": {"ami": ami, "architecture": "x86_64", "subnetIds": [subnet]}})
        (YARD / "pools.json").write_text(json.dumps(pools))

    def say(self, *words: str, limit: float = DEADLINE, check: bool = True) -> str:
        done = subprocess.run([RUNYARD, *words], env=self.environment, cwd=YARD, capture_output=True, text=True, timeout=limit)
        if check and done.returncode != 0:
            raise Failed(f"runyard {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def github(self, path: str, body: dict | None = None) -> dict:
        token = (YARD / "data/github/github-token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://localhost:8080{path}", data=data, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def records(self) -> dict[str, dict]:
        return {item["instanceId"]: item for item in json.loads(self.say("get", "instances", "-o", "json"))["items"]}

    # What a workflow does.

    def provision(self, kind: str, *more: str) -> tuple[int, Machine]:
        """A run with a machine of a class; whose it is."""
        self.runs += 1
        run = self.runs
        self.github("/_workflow/runs", {"repository": REPOSITORY, "run_id": run, "open": True})
        self.say("provision", "--run-id", str(run), "--repository", REPOSITORY, "--class", kind, "--count", "1", "--wait", *more)
        held = [id_ for id_, item in self.records().items() if str(run) in json.dumps(item.get("claim") or item)]
        return run, next(self.machines.all[id_] for id_ in held if id_ in self.machines.all)

    def job(self, run: int, *steps: str) -> str:
        """What a job of these steps says; it must succeed."""
        self.jobs += 1
        name = f"job {self.jobs}"
        self.github(f"/_workflow/runs/{run}/jobs", {"jobs": [{"name": name, "runs_on": [str(run)], "steps": steps}], "open": True})

        def done() -> dict | None:
            return next((job for job in self.github(f"/_workflow/runs/{run}")["jobs"] if job["name"] == name and job["conclusion"]), None)
        seen = wait(f"{name} of run {run}", done)
        if seen["conclusion"] != "success":
            raise Failed(f"{name}: {seen['conclusion']}: {(seen['log'] or '')[-600:]}")
        return seen["log"] or ""

    def release(self, run: int) -> None:
        self.say("release", "--run-id", str(run), "--repository", REPOSITORY, "--wait")
        with contextlib.suppress(urllib.error.HTTPError):
            self.github(f"/_workflow/runs/{run}/cancel", {})

    def tell(self, what: str, began: float) -> None:
        print(f"tests/system/boot: {what} ({time.monotonic() - began:.1f} s)", flush=True)

    def play(self) -> None:
        began = time.monotonic()
        run, machine = self.provision("one")
        self.tell(f"{machine.id} booted and serves run {run}", began)
        began = time.monotonic()
        log = self.job(run, "echo hello from $(id -un)", "uname -a")
        print(log)
        self.tell("a job ran", began)

    def trouble(self) -> str:
        """What there is to read when something went wrong."""
        print(f"==> metadata {self.metadata.asked[-40:]}")
        said = [f"==> {name}\n{self.log(name)[-2500:]}" for name in ("operator", "world", "moto", "forward")]
        said += [f"==> EC2\n{self.machines.wrong}"] if hasattr(self, "machines") else []
        for machine in getattr(self, "machines", None).all.values() if hasattr(self, "machines") else []:
            said.append(f"==> console of {machine.name} {machine.id}\n{machine.console()[-6000:]}")
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                said.append(machine.within("journalctl", "--no-pager", "-o", "short-monotonic", "-n", "80", check=False))
                said.append(machine.within("sh", "-c", "grep -E \"WARN|ERR|^[A-Za-z.]*Error|scripts\" /var/log/cloud-init.log; tail -n 40 /var/log/cloud-init-output.log", check=False))
        return "\n".join(line[:400] for line in "\n".join(said).splitlines() if not NOISE.search(line))


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["PATH"] = PATH
    lab = Lab(spec)
    try:
        build(spec["programs"])
        lab.serve()
        lab.play()
    except Exception as why:  # noqa: BLE001  whatever it is, it is told with all there is to read
        traceback.print_exc()
        print(f"tests/system/boot: {type(why).__name__}: {why}\n{lab.trouble()}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    # Process 1 has to wait for everybody's children: what plays is one of them.
    if (player := os.fork()) == 0:
        code = main()
        sys.stdout.flush()
        os._exit(code)
    while True:
        pid, status = os.wait()
        if pid == player:
            os._exit(os.waitstatus_to_exitcode(status))
