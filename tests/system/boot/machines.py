"""EC2's side of the machines: what the operator launches there is booted here, as a container with a systemd of its own
that reaches nothing but the laboratory; what EC2 ends is switched off, and what switches itself off has ended there.
"""

import base64
import contextlib
import itertools
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import imds
import network
import roots

TABLE, CLASS = "runyard:table", "runyard:class"
# The machines' network; machine n has the address FIRST + n.
HERE, FIRST = "198.51.100.", 10
# How long a machine that EC2 ends has to switch itself off, in seconds.
PATIENCE = 20
# When the console of a machine that ended is posted, in seconds: at EC2 it takes minutes.
POSTED_AFTER = 10


def tagged(told: dict, name: str) -> str:
    return next(tag["Value"] for tag in told["Tags"] if tag["Key"] == name)


class Machine:
    """One that was launched, from its first boot to its end."""

    # Above it are the numbers of users that nobody else has.
    first_user = 0

    def __init__(self, told: dict, number: int, user_data: str, image: "Image", place: Path, key: tuple[str, str]) -> None:
        self.id, self.number, self.place, self.image = told["InstanceId"], number, place, image
        self.kind = tagged(told, CLASS)
        self.address, self.address6 = f"{HERE}{FIRST + number}", f"fd51::{FIRST + number}"
        self.name = f"m{number}"
        self.began = time.monotonic()
        self.switched_off: float | None = None
        self.asked_to_end: float | None = None
        account = "123456789012"
        zone = told["Placement"]["AvailabilityZone"]
        self.tree = imds.tree({"id": self.id, "type": told["InstanceType"], "zone": zone, "account": account, "image": told["ImageId"],
                               "address": self.address, "mac": network.hardware(number), "user_data": user_data, "role": "yard-machine", "key": key[0],
                               "secret": key[1], "spot": told.get("InstanceLifecycle") == "spot"})
        self.console_file = place / "console"
        self.nspawn: subprocess.Popen | None = None

    def boot(self) -> None:
        upper, work, root = (self.place / name for name in ("upper", "work", "root"))
        for directory in (upper, work, root):
            directory.mkdir(parents=True)
        link = upper / "etc/systemd/network/10-ec2.network"
        link.parent.mkdir(parents=True)
        link.write_text(f"[Match]\nName=eth*\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\nAddress={self.address6}/64\n"
                           "[Route]\nDestination=fd00:ec2::254/128\n")
        self.number_the_job_user(upper)
        self.image.change(upper)
        lower = ":".join(str(layer) for layer in self.image.layers)
        subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "none", str(root)],
                       check=True)
        group = Path("/sys/fs/cgroup/machines") / self.name
        group.mkdir(parents=True)
        # Its clocks begin with it.
        clocks = [f"--{name}=-{int(time.clock_gettime(clock))}"
                  for name, clock in (("monotonic", time.CLOCK_MONOTONIC), ("boottime", time.CLOCK_BOOTTIME))]
        command = ["unshare", "--time", *clocks, "--fork", "--kill-child", roots.tool("systemd-nspawn"), "--quiet", f"--directory={root}", "--boot", f"--machine={self.name}",
                   f"--hostname=ip-{self.address.replace('.', '-')}", "--private-network",
                   "--register=no", "--keep-unit", "--console=read-only", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
                   # As on a machine of its own: systemd makes device rules of programs for the kernel, and jobs have keyrings.
                   "--system-call-filter=bpf @keyring", "--capability=CAP_BPF,CAP_NET_ADMIN,CAP_SYSLOG"]
        far, near = f"far{self.number}", f"eth{self.number}"
        for words in (["add", far, "type", "veth", "peer", "name", near, "address", network.hardware(self.number)],
                      ["set", far, "up", "master", "yard"]):
            subprocess.run(["ip", "link", *words], check=True)
        command.append(f"--network-interface={near}")
        # A shell goes into the group: Python code between fork and exec may wait for ever for what another thread holds.
        command = ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(group / "cgroup.procs"), *command]
        with self.console_file.open("wb") as console:
            self.nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=roots.environment(True),
                                           start_new_session=True)

    def number_the_job_user(self, upper: Path) -> None:
        """Keys are the kernel's, which all machines here share: each machine's jobs are another user."""
        base = next(layer / "etc/login.defs" for layer in self.image.layers if (layer / "etc/login.defs").is_file())
        text = re.sub(r"^#?\s*SYS_[UG]ID_M(IN|AX)\b.*\n", "", base.read_text(), flags=re.MULTILINE)
        number = self.first_user + self.number
        text += "".join(f"{name} {number}\n" for name in ("SYS_UID_MIN", "SYS_UID_MAX", "SYS_GID_MIN", "SYS_GID_MAX"))
        (upper / "etc/login.defs").write_text(text)

    def console_at_ec2(self, latest: bool) -> bytes | None:
        """What EC2 tells: of a machine that is on what is there now, of one that ended what is posted a while later."""
        if self.nspawn is None or latest != self.is_on() or (not latest and time.time() - self.console_file.stat().st_mtime < POSTED_AFTER):
            return None
        return self.console_file.read_bytes()[-(64 << 10):]

    def console(self) -> str:
        """What it wrote there, without colours."""
        if not self.console_file.exists():
            return ""
        text = self.console_file.read_bytes().decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text)

    def said(self) -> list[str]:
        """Its lines that are Runyard's."""
        return [line for line in self.console().splitlines() if re.search(r"\brunyard: ", line)]

    def is_on(self) -> bool:
        return self.nspawn is not None and self.nspawn.poll() is None

    def began_and_is_off(self) -> bool:
        return self.nspawn is not None and not self.is_on()

    def init(self) -> int | None:
        """Its process 1, as seen from here."""
        if not self.is_on():
            return None
        child = self.nspawn.pid
        with contextlib.suppress(OSError, IndexError, ValueError):
            for _ in range(2):
                child = int(Path(f"/proc/{child}/task/{child}/children").read_text().split()[0])
            return child
        return None

    def within(self, *words: str, limit: float = 300, check: bool = True) -> str:
        """As root of the machine."""
        if (pid := self.init()) is None:
            raise OSError(f"{self.name} is off")
        command = ["nsenter", f"--target={pid}", "--all", "--root", "--wd=/", "env", "-i",
                   "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, errors="replace")
        if check and done.returncode != 0:
            raise OSError(f"{self.name}: {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def press(self) -> None:
        """The power button, once; what does not mind it is switched off after a while."""
        now = time.monotonic()
        if self.asked_to_end is None:
            self.asked_to_end = now
            if pid := self.init():
                os.kill(pid, signal.SIGRTMIN + 4)
        elif now - self.asked_to_end > PATIENCE and self.is_on():
            os.killpg(self.nspawn.pid, signal.SIGKILL)


class Image:
    """What machines are made from: layers, upper ones first, and what is changed on each machine of it."""

    def __init__(self, layers: list[Path], change=lambda upper: None) -> None:
        self.layers, self.change = layers, change


class Machines:
    """Keeps machines for as long as EC2 has them."""

    numbers = itertools.count(1)

    def __init__(self, ec2, table: str, images: dict[str, Image], place: Path, metadata: imds.Service, key: tuple[str, str]) -> None:
        self.ec2, self.table, self.images, self.place, self.metadata, self.key = ec2, table, images, place, metadata, key
        self.all: dict[str, Machine] = {}
        self.wrong: list[str] = []
        threading.Thread(target=self.keep, daemon=True).start()

    def keep(self) -> None:
        while True:
            try:
                self.look()
            except Exception as why:  # noqa: BLE001  what goes wrong here is told, once each, and tried again
                if (told := f"{type(why).__name__}: {why}") not in self.wrong:
                    self.wrong.append(told)
            time.sleep(0.2)

    def look(self) -> None:
        pages = self.ec2.describe_instances(Filters=[{"Name": f"tag:{TABLE}", "Values": [self.table]}])
        for told in (one for reservation in pages["Reservations"] for one in reservation["Instances"]):
            alive = told["State"]["Name"] in ("pending", "running")
            machine = self.all.get(told["InstanceId"])
            if machine is None:
                if alive:
                    self.launch(told)
            elif not alive and machine.is_on():
                machine.press()
            elif alive and not machine.is_on():
                # As its template has it: a shutdown terminates.
                machine.switched_off = time.monotonic()
                self.ec2.terminate_instances(InstanceIds=[machine.id])

    def launch(self, told: dict) -> None:
        version = self.version(told)
        user_data = base64.b64decode(version["UserData"]).decode()
        number = next(self.numbers)
        kind = tagged(told, CLASS)
        machine = Machine(told, number, user_data, self.images[kind], self.place / told["InstanceId"], self.key)
        self.metadata.machine([machine.address, machine.address6], machine.tree)
        self.all[machine.id] = machine
        machine.boot()

    def version(self, told: dict) -> dict:
        """Of the launch template that the machine comes from."""
        name = f"{self.table}-{tagged(told, CLASS)}"
        found = self.ec2.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Latest"])
        data = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        if data["InstanceInitiatedShutdownBehavior"] != "terminate" or data["MetadataOptions"]["HttpTokens"] != "required":
            raise ValueError(f"the template {name} is not what it should be: {data}")
        return data

