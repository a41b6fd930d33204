"""The laboratory itself, as process 1 of namespaces of its own: builds a machine out of an overlay of this one, serves a
yard in it, has one run plant and the next one look, and writes what came of it as JSON to the descriptor it is given. It is called
by `run` and leaves nothing behind: what it mounts and starts goes with its namespaces.
"""

import contextlib
import http.server
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import builds
import claims
import machine
import registry
import traces

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import verbs  # noqa: E402

TESTS = Path("/srv/lab/tests")
JOB = "/usr/bin/python3 -I -c \"import sys; sys.path.insert(0, '/srv/lab/tests'); import job; job.main(*sys.argv[1:])\""
LAB = Path("/srv/lab")
YARD = Path("/srv/yard")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REPOSITORY = "demo/app"
# When what hangs is given up, in seconds: it judges nothing.
DEADLINE = 600
# What of this machine is none of the laboratory's business, or would only make its walks long.
COVERED = ["boot", "home", "media", "mnt", "opt", "root", "srv", "tmp", "var/tmp", "var/cache", "var/log", "var/mail",
           "usr/include", "usr/src", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/icons", "usr/share/fonts",
           "usr/share/mime", "usr/lib/node_modules", "usr/share/nodejs", "usr/local/lib/node_modules", "usr/share/vim",
           "usr/lib/python3/dist-packages", "usr/lib/gcc", "usr/lib/jvm", "usr/share/perl", "usr/lib/git-core"]
# What a build needs of that.
BUILDING = {"usr/lib/gcc", "usr/lib/git-core", "usr/lib/node_modules", "usr/share/nodejs", "usr/local/lib/node_modules"}
# Top-level directories of a Debian or Ubuntu root; any other is covered too.
KEPT = {"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var", "dev", "proc", "sys", "run"}
IN_MEMORY = {"tmp": "1777", "var/tmp": "1777", "run": "0755"}
# What a class keeps in laboratories of that kind, and whose runs they are: nothing of theirs may be kept.
KEEP = [{"name": "cache", "path": "~/.cache"}, {"name": "tools", "path": "/opt/hostedtoolcache"}]
UNTRUSTED = {"event": "pull_request", "head_branch": "patch-1", "head_sha": "1" * 40, "head_repository": "mallory/app"}
# Where the world is, of which the laboratory's GitHub is a part.
WORLD, GATEWAY = "198.51.100.2", "198.51.100.1"
# In the world, and answers nothing.
SILENT = "198.51.100.77"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0), "fuse": (10, 229)}
POWER = """#!/bin/sh
# Stands for the machine's switch: tells the laboratory, and ends the agent.
if [ "$1" = poweroff ] && [ "$(id -u)" = 0 ]; then
  echo "$*" >>/srv/lab/poweroff
  kill -KILL "$PPID"
fi
"""
SPEC = [{"resourceClass": "one", "cpu": 1, "mmem": 1024, "max": 1}]


class Closed(Exception):
    """The machine ended itself, or registered nothing; why."""


class Broken(Exception):
    """The laboratory itself did not do what it should."""


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def build(spec: dict) -> None:
    """Mounts the machine and makes it this process's root."""
    base = Path(spec["base"])
    building = spec.get("builds", False)
    size = "3g" if building else "4g" if spec.get("real") else "1300m"
    mount("-t", "tmpfs", "-o", f"size={size},nr_inodes=500k,mode=0755", "none", str(base))
    root, upper, work, programs = (base / name for name in ("root", "upper", "work", "programs"))
    for directory in (root, upper, work):
        directory.mkdir()
    # No layer may lie within another: copies.
    (programs / "usr/local/bin").mkdir(parents=True)
    for name, program in spec["programs"].items():
        shutil.copy(program, programs / "usr/local/bin" / name)
        (programs / "usr/local/bin" / name).chmod(0o755)
    if building:
        builds.toolchain(programs / builds.RUST.lstrip("/"))
    if libraries := spec.get("libraries"):
        subprocess.run(["cp", "-a", libraries, str(programs / "usr/local/lab-python")], check=True)
    lower = [str(programs)]
    if spec["packages"]:
        subprocess.run(["cp", "-a", spec["packages"], str(base / "packages")], check=True)
        lower.append(f"{base}/packages")
    empty(upper, BUILDING if building else set())
    mount("-t", "overlay", "-o", f"lowerdir={':'.join([*lower, '/'])},upperdir={upper},workdir={work}", "none", str(root))
    furnish_directories(root)
    # By which products know that they run in a container of Docker's: a machine does not.
    (root / ".dockerenv").unlink(missing_ok=True)
    for kind, place in (("proc", "proc"), ("sysfs", "sys")):
        mount("-t", kind, kind, str(root / place))
    spare_the_host(root)
    if spec["group"]:
        mount("-t", "cgroup2", "cgroup2", str(root / "sys/fs/cgroup"))
    if keeps(spec):
        # An overlay takes no layer that is on another one.
        (root / "var/lib/runyard").mkdir(mode=0o711, exist_ok=True)
        mount("-t", "tmpfs", "-o", "size=1g,nr_inodes=250k,mode=0711", "none", str(root / "var/lib/runyard"))
    devices(root / "dev", queues="nomqueue" not in spec["image"], tun="rootless" in spec["image"])
    mount("-t", "tmpfs", "-o", "size=512m,mode=0700", "none", str(root / "srv/yard"))
    shutil.copytree(HERE, root / "srv/lab/tests", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "go=rX,u=rwX", str(root / "srv/lab")], check=True)
    old = root / "mnt/old"
    old.mkdir()
    subprocess.run(["pivot_root", str(root), str(old)], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/mnt/old"], check=True)
    os.rmdir("/mnt/old")


def keeps(spec: dict) -> bool:
    """Whether the class keeps directories."""
    return spec.get("builds", False) or "kept" in spec["image"]


def empty(upper: Path, shown: set[str]) -> None:
    """Of these directories the machine has others of its own, on its one file system."""
    top = {entry.name for entry in Path("/").iterdir() if entry.is_dir() and not entry.is_symlink()} - KEPT
    for name in sorted({*COVERED, *top} - shown):
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            place = upper
            for part in Path(name).parts:
                place = place / part
                place.mkdir(mode=0o755, exist_ok=True)
            os.setxattr(place, "trusted.overlay.opaque", b"y")


def furnish_directories(root: Path) -> None:
    for name, mode in IN_MEMORY.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", f"size=512m,nr_inodes=250k,mode={mode}", "none", str(root / name))
    for name, mode in (("run/lock", 0o1777), ("var/lib/systemd/linger", 0o755), ("var/spool/cron/crontabs", 0o1730),
                       ("var/spool/cron/atjobs", 0o1770), ("run/sshd", 0o755), ("root", 0o700), ("var/crash", 0o1777),
                       ("var/log", 0o755), ("var/mail", 0o2775), ("home", 0o755), ("opt", 0o755), ("mnt", 0o755),
                       ("srv/lab/scripts", 0o755), ("srv/yard", 0o700)):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)


def spare_the_host(root: Path) -> None:
    """What the kernel has one of, and not one for each namespace, is not this laboratory's to set."""
    kept = root / "run/kept"
    for directory in ("kernel", "vm", "fs"):
        place = root / "proc/sys" / directory
        mount("--bind", str(place), str(place))
        mount("-o", "remount,bind,ro", str(place))
    kept.mkdir(mode=0o700)
    for name in ("kernel/core_pattern", "kernel/dmesg_restrict", "kernel/io_uring_disabled", "fs/inotify/max_user_instances"):
        place, copy = root / "proc/sys" / name, kept / Path(name).name
        if place.exists():
            copy.write_text(place.read_text())
            mount("--bind", str(copy), str(place))


def devices(dev: Path, queues: bool, tun: bool) -> None:
    mount("-t", "tmpfs", "-o", "mode=0755", "none", str(dev))
    for name, (major, minor) in DEVICES.items():
        os.mknod(dev / name, 0o020666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    if tun:
        (dev / "net").mkdir()
        os.mknod(dev / "net/tun", 0o020666, os.makedev(10, 200))
        (dev / "net/tun").chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")):
        (dev / name).symlink_to(target)
    for name in ("shm", "pts", "mqueue"):
        (dev / name).mkdir()
    mount("-t", "tmpfs", "-o", "size=256m,mode=1777", "none", str(dev / "shm"))
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=0620", "none", str(dev / "pts"))
    if queues:
        mount("-t", "mqueue", "none", str(dev / "mqueue"))
        (dev / "mqueue").chmod(0o1777)


class Reports(http.server.BaseHTTPRequestHandler):
    """What jobs tell."""

    told: dict[str, dict] = {}

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.told.setdefault(self.path.strip("/"), {}).update(report)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Lab:
    """A machine with a yard, and two runs on it."""

    def __init__(self, spec: dict) -> None:
        self.spec, self.since = spec, time.time() - 1
        self.rounds = [[plant | {"canary": [f"CNRY-{plant['id']}", secrets.token_hex(4)]} for plant in plants]
                       for plants in spec["rounds"]]
        self.plants = [plant for plants in self.rounds for plant in plants]
        # How many rounds have been gone through.
        self.result: dict = {"closed": None, "broken": None, "seconds": 0, "rounds": 0}
        self.environment: dict[str, str] = {}
        self.jobs = self.runs = 0
        self.processes: list[subprocess.Popen] = []

    def run(self) -> dict:
        begun = time.monotonic()
        try:
            self.furnish()
            self.connect()
            self.serve()
            if "claims" in self.spec:
                self.result |= claims.Claims(self, self.spec, wait).play()
            elif "builds" in self.spec:
                self.result |= builds.Builds(self, Reports.told).play()
            else:
                self.play()
        except Closed as why:
            self.result["closed"] = str(why)
        except (Broken, OSError, subprocess.SubprocessError, KeyError, ValueError) as why:
            self.result["broken"] = f"{type(why).__name__}: {why}"
        if self.result["closed"] or self.result["broken"] or os.environ.get("ESCAPE_LOGS"):
            self.result["logs"] = self.logs()
        with contextlib.suppress(OSError, ValueError):
            self.result["not_applied"] = json.loads((LAB / "not-applied").read_text())
        self.result["reports"] = Reports.told
        self.forget_keys()
        self.result["seconds"] = round(time.monotonic() - begun, 1)
        return self.result

    # The machine before its first run.

    def furnish(self) -> None:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for address in ("169.254.169.254/32", "fd00:ec2::254/128"):
            subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
        subprocess.run(["hostname", "laboratory"], check=True)
        os.environ.update({"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"})
        for group in ("crontab", "_ssh"):
            subprocess.run(["groupadd", "--force", "--system", group], check=True)
        for name, home in (("sshd", "/run/sshd"), ("daemon", "/")):
            if subprocess.run(["id", name], capture_output=True).returncode != 0:
                subprocess.run(["useradd", "--system", "--no-create-home", "--home-dir", home, name], check=True)
        for program, owner, mode in (("/usr/bin/crontab", "root:crontab", "2755"), ("/usr/bin/at", "daemon:daemon", "6755"),
                                     ("/usr/bin/newuidmap", "root:root", "4755"), ("/usr/bin/newgidmap", "root:root", "4755")):
            if Path(program).exists():
                subprocess.run(["chown", owner, program], check=True)
                subprocess.run(["chmod", mode, program], check=True)
        for place, owner in (("/var/spool/cron/crontabs", "root:crontab"), ("/var/spool/cron/atjobs", "daemon:daemon")):
            subprocess.run(["chown", owner, place], check=True)
        sequence = Path("/var/spool/cron/atjobs/.SEQ")
        sequence.touch(mode=0o600)
        shutil.chown(sequence, "daemon", "daemon")
        switch = Path("/usr/local/sbin/systemctl")
        switch.unlink(missing_ok=True)
        switch.write_text(POWER)
        switch.chmod(0o755)
        wrapper = LAB / "agent"
        wrapper.write_text(f"#!/bin/sh\nexec /usr/bin/python3 {LAB}/tests/machine.py \"$@\"\n")
        wrapper.chmod(0o755)
        for plant in self.plants:
            for kind in ("before", "plant", "during", "find", "root"):
                if text := plant.get(kind):
                    (LAB / "scripts" / f"{plant['id']}.{kind}").write_text(text.replace("REGISTRY", f"{WORLD}:8083") + "\n")
        told = {"limits": self.spec["limits"], "open": self.spec.get("open", False)}
        if self.spec["group"]:
            told["group"] = "/sys/fs/cgroup"
        (LAB / "lab.json").write_text(json.dumps(told))
        if "no-nft" in self.spec["image"]:
            # There, and no program.
            mount("--bind", "/dev/null", "/usr/sbin/nft")
        self.install()
        self.daemons()

    def install(self) -> None:
        """As cloud-init does at first boot, so that the account is there before anything is prepared for it."""
        place = LAB / "first.toml"
        place.write_text("table = 'runyard'\nrunner.url = 'http://127.0.0.1:1/x'\nrunner.sha256 = '" + "0" * 64 + "'\n")
        machine.configure(place)
        settings = Path("/etc/login.defs")
        text = settings.read_text() if settings.exists() else ""
        for name, value in self.spec["numbers"].items():
            text = re.sub(rf"^#?{name}\b.*\n", "", text, flags=re.MULTILINE) + f"{name} {value}\n"
        settings.write_text(text + "".join(f"{name} {most}\n" for name, most in
                                           (("UID_MAX", 60_000), ("SUB_UID_MAX", 600_100_000), ("SUB_GID_MAX", 600_100_000))))
        if "brings-user" in self.spec["image"]:
            self.bring_user()
        done = subprocess.run([machine.AGENT, "install", "--config", str(machine.CONFIG)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Closed(f"install: {done.stderr.strip()[-300:]}")
        self.forget_keys()

    def forget_keys(self) -> None:
        """What is left of another laboratory's user of that number, and of ours: keys are the kernel's, not a namespace's."""
        tool = [sys.executable, "-I", str(TESTS / "tools.py"), "forget"]
        subprocess.run(["setpriv", f"--reuid={machine.JOB_USER}", "--clear-groups", *tool], check=False)

    def bring_user(self) -> None:
        """An image that has a user of that name already: a login, with subordinate ids, in the group of an engine."""
        name = machine.JOB_USER
        subprocess.run(["groupadd", "--force", "--system", "docker"], check=True)
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "--groups", "docker", name], check=True)

    def cgroup(self, name: str):
        """Has a child be born in a group of its own, as a service of systemd's is."""
        if not self.spec["group"]:
            return None
        group = Path("/sys/fs/cgroup/system.slice") / name
        group.mkdir(parents=True, exist_ok=True)
        return lambda: (group / "cgroup.procs").write_text("0")

    def start(self, name: str, *words: str, **more) -> subprocess.Popen:
        log = (LAB / f"{name}.log").open("ab")
        os.chmod(LAB / f"{name}.log", 0o600)
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                 preexec_fn=self.cgroup(name), **more)
        self.processes.append(child)
        return child

    def daemons(self) -> None:
        """What stock images have running. Each is there or left out by `run`, aloud."""
        if Path("/usr/sbin/sshd").exists():
            subprocess.run(["ssh-keygen", "-A"], check=True, capture_output=True)
            self.start("sshd", "/usr/sbin/sshd", "-D", "-e", "-o", "UsePAM=yes", "-o", "ListenAddress=0.0.0.0", "-o", "LogLevel=ERROR")
        if Path("/usr/sbin/cron").exists():
            self.start("cron", "/usr/sbin/cron", "-f")
        if Path("/usr/sbin/atd").exists():
            self.start("atd", "/usr/sbin/atd", "-f", "-b", "1")
        if Path("/usr/bin/dbus-daemon").exists():
            Path("/run/dbus").mkdir(exist_ok=True)
            self.start("dbus", "/usr/bin/dbus-daemon", "--system", "--nofork", "--nopidfile")
        if "whole" in self.spec["image"]:
            self.start("dockerd", "/usr/sbin/dockerd", "--data-root", "/var/lib/docker", "--exec-root", "/run/docker",
                       "--storage-driver=vfs", "-H", "unix:///var/run/docker.sock")
            wait("Docker", Path("/var/run/docker.sock").exists)
        for family, address in (("4", "169.254.169.254"), ("6", "fd00:ec2::254")):
            self.start(f"metadata{family}", sys.executable, "-I", "-m", "http.server", "80", "--bind", address, "--directory", "/var/log")

    def connect(self) -> None:
        """The world at the end of a link: a job's network may not be the machine's."""
        world = self.start("world", "unshare", "--net", "sleep", "infinity")
        wait("the world", lambda: os.readlink(f"/proc/{world.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        within = ["nsenter", f"--net=/proc/{world.pid}/ns/net"]
        for words in (["link", "add", "world", "type", "veth", "peer", "name", "eth0", "netns", str(world.pid)],
                      ["address", "add", f"{GATEWAY}/30", "dev", "world"], ["link", "set", "world", "up"],
                      ["route", "add", SILENT, "via", WORLD]):
            subprocess.run(["ip", *words], check=True)
        for words in (["link", "set", "lo", "up"], ["address", "add", f"{WORLD}/30", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["route", "add", "default", "via", GATEWAY], ["route", "add", "blackhole", SILENT]):
            subprocess.run([*within, "ip", *words], check=True)
        ports = [f"8080={YARD}/data/github/api.port", f"8081={LAB}/reports.port"]
        # The operator takes http of no other name.
        Path("/etc/hosts").write_text(f"{WORLD} localhost\n127.0.1.1 laboratory\n")
        if "builds" in self.spec:
            (LAB / "registry.port").write_text(str(builds.serve()))
            builds.project(f"http://{WORLD}:8082")
            ports.append(f"8082={LAB}/registry.port")
        if "rootless" in self.spec["image"]:
            (LAB / "images.port").write_text(str(registry.serve()))
            ports.append(f"8083={LAB}/images.port")
            Path("/etc/containers").mkdir(exist_ok=True)
            Path("/etc/containers/registries.conf").write_text(f'[[registry]]\nlocation = "{WORLD}:8083"\ninsecure = true\n')
        self.start("forward", *within, sys.executable, "-I", f"{TESTS}/forward.py", *ports)
        wait("the world's ports", lambda: "ready" in (LAB / "forward.log").read_text())

    # The yard.

    def serve(self) -> None:
        reports = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reports)
        threading.Thread(target=reports.serve_forever, daemon=True).start()
        (LAB / "reports.port").write_text(str(reports.server_port))
        environment = {"PATH": PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "RUNYARD_AGENT": str(LAB / "agent"),
                       "AWS_EC2_METADATA_DISABLED": "true", "RUNYARD_TIMING__AGENT_POLL": "100ms",
                       "RUNYARD_TIMING__HEARTBEAT": "500ms", "RUNYARD_GITHUB__API_URL": "http://localhost:8080"}
        environment["RUNYARD_STAND_IN_PACKAGE"] = ",".join(self.package())
        if self.spec.get("real"):
            # A debug build takes minutes to unpack such a package.
            environment |= {"RUNYARD_TIMING__CREATED": "15m", "RUNYARD_TIMING__CLAIMED": "15m"}
        up = self.start("operator", "/usr/local/bin/runyard", "up", "--dir", str(YARD / "data"), env=environment, cwd=YARD)

        def is_up() -> bool:
            if up.poll() is not None:
                raise Broken(f"runyard up ended with {up.returncode}")
            return "Runyard is up" in (LAB / "operator.log").read_text(errors="replace")
        wait("runyard up", is_up)
        text = (YARD / "data/env").read_text()
        self.environment = environment | dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
        for name in re.findall(r"^unset (.*)$", text, re.MULTILINE)[0].split():
            self.environment.pop(name, None)
        jobs = {"jobs": {"containers": "rootless"}} if "rootless" in self.spec["image"] else {}
        if "whole" in self.spec["image"]:
            jobs = {"jobs": {"root": True, "containers": "engine"}, "reuseWithin": "none", "registrationMode": "job", "max": 2}
        if keeps(self.spec):
            of = {"keep": builds.KEEP, "reuseWithin": "owner"} if "builds" in self.spec else {"keep": KEEP}
            jobs |= of
        if "claims" in self.spec:
            ahead = self.spec["ahead"]
            jobs |= {"desired": 1, "registeredAhead": ahead} | ({"reuseWithin": "repository"} if ahead else {})
        (YARD / "pool.json").write_text(json.dumps([SPEC[0] | jobs]))
        self.say("apply", "-f", str(YARD / "pool.json"))

    def package(self) -> list[str]:
        """How the runner is: it takes GitHub's time where time is measured, and asks for libicu where there is one."""
        words = ["real" if self.spec.get("real") else "small"]
        if "claims" not in self.spec:
            words.append("unpaced")
        if self.spec["libicu"]:
            words.append("libicu")
        return words

    def say(self, *words: str) -> str:
        done = verbs.run(["/usr/local/bin/runyard", *words], env=self.environment, cwd=YARD)
        if done.returncode != 0:
            raise Broken(f"runyard {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def github(self, path: str, body: dict | None = None) -> dict:
        home = YARD / "data/github"
        token, port = ((home / name).read_text().strip() for name in ("github-token", "api.port"))
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def machines(self) -> list[dict]:
        return json.loads(self.say("get", "instances", "-o", "json"))["items"]

    def ended(self) -> None:
        """A machine that is off is no machine any more."""
        if (LAB / "poweroff").exists() or "agent ended machine=" in (LAB / "operator.log").read_text(errors="replace"):
            raise Closed(self.why())

    def why(self) -> str:
        """The agent's last word on it."""
        said = "\n".join(log.read_text(errors="replace") for log in sorted((YARD / "data").glob("**/agent.log")))
        said = re.sub(r"\x1b\[[0-9;]*m", "", said)
        for pattern in (r'signal=UD_\w*FAILED .*?detail="(.*)"', r"((?:thread .*)?(?:overflow|panicked).*)", r"(?:WARN|ERROR) (.*)"):
            if found := re.findall(pattern, said):
                return found[-1][:300]
        return "the agent ended without a word"

    # One run plants, the next one looks, and plants again.

    def play(self) -> None:
        """Until all rounds are through, or one has left something, which must not be taken for another one's."""
        before: list[dict] = []
        for number, plants in enumerate(self.rounds):
            self.prepare(plants)
            run = self.provision()
            if before and self.reaches(run, before, number):
                return
            self.plant(run, plants)
            before = plants
            if any("before" in plant for plant in plants):
                # What root put there for them must be there when they are looked for, and not for others.
                run = self.provision()
                if self.reaches(run, before, number + 1):
                    return
                self.release(run)
                self.settled()
                before = []
                for place in (*Path("/opt").iterdir(), *Path("/var/crash").iterdir(), *Path("/etc").glob("lab-*")):
                    subprocess.run(["rm", "-rf", str(place)], check=True)
        if before:
            self.reaches(self.provision(), before, len(self.rounds))

    def reaches(self, run: int, plants: list[dict], number: int) -> bool:
        """Whether this run, or root meanwhile, finds anything of the one before; so many rounds are through then."""
        self.batch(plants, "before")
        self.work(run, f"{JOB} look before next")
        self.note("next-root", self.look(plants))
        self.result["rounds"] = number
        told = [Reports.told.get(word, {}) for word in ("next", "next-root", "left-root")]
        return any(plant["id"] in found for found in told for plant in plants)

    def prepare(self, plants: list[dict]) -> None:
        """What plants need of root."""
        for plant in plants:
            if "before" in plant:
                code, said = self.as_root(plant, "before")
                if code != 0:
                    raise Broken(f"{plant['id']}: before: {said}")

    def batch(self, plants: list[dict], which: str) -> None:
        """What the steps of the next job go by."""
        told = [{key: plant[key] for key in ("id", "canary", "limit", "job") if key in plant} | ({"find": 1} if "find" in plant else {})
                for plant in plants]
        (LAB / "batch.json").write_text(json.dumps({"reports": f"http://{WORLD}:8081", "since": self.since, which: told}))

    def plant(self, run: int, plants: list[dict]) -> None:
        """A run's jobs, what is seen of them while they stand, and the cleaning."""
        self.batch(plants, "now")
        self.note("clean-root", self.look(plants))
        breaks = any(plant.get("breaks") for plant in plants)
        self.work(run, f"{JOB} look now clean", f"{JOB} plant now planted", breaks=breaks)
        for plant in plants:
            if "job" in plant:
                self.note("planted", {plant["id"]: self.own_job(run, plant)})
        for plant in plants:
            if "during" in plant:
                code, said = self.as_root(plant, "during")
                if code != 0:
                    self.note("during", {plant["id"]: said})
        self.note("control-root", self.look(plants))
        if not breaks:
            self.work(run, f"{JOB} look now control")
        self.release(run)
        self.settled()
        self.note("left-root", self.look(plants))

    def own_job(self, run: int, plant: dict) -> list:
        """A job as a workflow defines it; whether it ended as it should, and its last words."""
        begun = time.monotonic()
        job = {"steps": [plant["plant"]], "env": {"C": "-".join(plant["canary"])}} | plant["job"]
        seen = self.job(run, json.loads(json.dumps(job).replace("REGISTRY", f"{WORLD}:8083")))
        said = seen["log"] or ""
        if "fails" in plant:
            well = seen["conclusion"] == "failure" and plant["fails"].replace("REGISTRY", f"{WORLD}:8083") in said
        else:
            well = seen["conclusion"] == "success"
        self.result.setdefault("jobs", {})[plant["id"]] = round(time.monotonic() - begun, 1)
        return [0 if well else 1, said[-2500:]]

    def note(self, what: str, found: dict[str, str]) -> None:
        Reports.told.setdefault(what, {}).update(found)

    def as_root(self, plant: dict, kind: str) -> tuple[int | None, str]:
        account = subprocess.run(["id", "-u", machine.JOB_USER], capture_output=True, text=True).stdout.strip()
        environment = {"PATH": PATH, "HOME": "/root", "C": "-".join(plant["canary"]), "U": account, "N": machine.JOB_USER,
                       "ID": plant["id"], "BASH_ENV": str(LAB / "tests/library.sh")}
        command = ["bash", "-e", "-o", "pipefail", f"{LAB}/scripts/{plant['id']}.{kind}"]
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                                  errors="replace")
        except subprocess.TimeoutExpired:
            return None, "it took too long"
        return done.returncode, (done.stdout + done.stderr).strip()[:400]

    def look(self, plants: list[dict]) -> dict[str, str]:
        known = {plant["id"] for plant in plants}
        found = {name: "; ".join(places) for name, places in traces.look(self.since).items() if name in known}
        for plant in plants:
            if "root" in plant:
                code, said = self.as_root(plant, "root")
                if code == 0:
                    found[plant["id"]] = said or "its own look finds it"
        return found

    def provision(self, repository: str = REPOSITORY, source: dict | None = None) -> int:
        """The next run, with the machine. Where directories are kept, a run that is not named otherwise is a fork's."""
        self.runs += 1
        run = self.runs
        source = source or (UNTRUSTED if keeps(self.spec) else {})
        self.github("/_workflow/runs", {"repository": repository, "run_id": run, "open": True, "source": source})
        words = ["provision", "--run-id", str(run), "--repository", repository, "--class", "one", "--count", "1", "--wait"]
        asking = subprocess.Popen(["/usr/local/bin/runyard", *words], env=self.environment, cwd=YARD, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        try:
            def is_done() -> bool:
                self.ended()
                return asking.poll() is not None
            wait("a machine", is_done)
            if asking.returncode != 0:
                raise Broken(f"provision ended with {asking.returncode}: {asking.stderr.read().decode()[-400:]}")
        finally:
            if asking.poll() is None:
                asking.kill()
            asking.wait()
        if len(self.alive()) != 1:
            raise Broken(f"not one machine: {self.machines()}")
        return run

    def alive(self) -> list[dict]:
        return [item for item in self.machines() if item["state"].lower() not in ("terminated", "ended")]

    def work(self, run: int, *steps: str, breaks: bool = False) -> None:
        """A job of these steps, to its end. What it plants may break its own runner."""
        seen = self.job(run, {"steps": steps})
        if seen["conclusion"] != "success" and not breaks:
            raise Broken(f"{seen['name']}: {seen['conclusion']} {seen['exit_code']}: {(seen['log'] or '')[-600:]}")

    def job(self, run: int, defined: dict) -> dict:
        self.jobs += 1
        job = {"name": f"job {self.jobs}", "runs_on": [str(run)]} | defined
        self.github(f"/_workflow/runs/{run}/jobs", {"jobs": [job], "open": True})

        def is_done() -> dict | None:
            self.ended()
            for seen in self.github(f"/_workflow/runs/{run}")["jobs"]:
                if seen["name"] == job["name"] and seen["conclusion"]:
                    return seen
            return None
        return wait(job["name"], is_done, limit=DEADLINE)

    def release(self, run: int, repository: str = REPOSITORY) -> None:
        asking = subprocess.Popen(["/usr/local/bin/runyard", "release", "--run-id", str(run), "--repository", repository, "--wait"],
                                  env=self.environment, cwd=YARD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def is_done() -> bool:
            self.ended()
            return asking.poll() is not None
        try:
            wait("the release", is_done)
        finally:
            if asking.poll() is None:
                asking.kill()
            asking.wait()
        with contextlib.suppress(urllib.error.HTTPError):
            self.github(f"/_workflow/runs/{run}/cancel", {})

    def settled(self) -> None:
        """Until the machine is in the pool again, or has ended."""
        def is_done() -> bool:
            self.ended()
            states = {item["state"].lower() for item in self.machines()}
            if states & {"idle", "pooled", "available", "ready"}:
                return True
            if not states or states <= {"terminated", "ended", "terminating", "ending"}:
                raise Closed(self.why())
            return False
        wait("the machine's return to the pool", is_done)

    def logs(self) -> str:
        files = [*sorted((YARD / "data").glob("**/agent.log")), *sorted(LAB.glob("*.log"))]
        return "\n".join(f"==> {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def wait(what: str, until, limit: float = DEADLINE):
    """What `until` answers once it is true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise Broken(f"gave up waiting for {what}")


def reap(controller: int) -> int:
    """As process 1: waits for all, ends with the controller, and all others with us."""
    while True:
        pid, status = os.wait()
        if pid == controller:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    out = os.dup(1)
    if (controller := os.fork()) != 0:
        os.close(out)
        return reap(controller)
    # What is started here must not hold the answer's descriptor, nor write into it.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        build(spec)
        result = Lab(spec).run()
    except (OSError, subprocess.SubprocessError) as why:
        result = {"unbuilt": True, "closed": None, "broken": f"it cannot be built: {why}", "reports": {}, "seconds": 0}
    with os.fdopen(out, "w") as answer:
        json.dump(result, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
