"""What is to be true of machines that boot, told as stories that go on at the same time; process 1 of the laboratory's
namespaces, called by `run`. Prints a line for each check.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import traceback
from pathlib import Path

import imds
import lab
from lab import LAB, PATH, WORLD, Failed, World, Yard, must, wait
from machines import CLASS, Image, Machine, Machines

# What is in the way of reading.
NOISE = re.compile(r"url_helper|DEBUG|ci-info|POST / HTTP|  OK  ")
# Prints the status of an answer of the metadata service, or what the failure is called.
CURL = "curl --silent --max-time 30 --output /dev/null --write-out '%{http_code} ' "
SERVICE = ("http://169.254.169.254", "http://[fd00:ec2::254]")


def says(machine: Machine, *parts: str) -> None:
    """In this order, each in a line of Runyard's."""
    lines = iter(machine.said())
    for part in parts:
        must(any(part in line for line in lines), f"no {part!r} on the console of {machine.kind}: {machine.said()}")


class Stories:
    def __init__(self, spec: dict) -> None:
        self.spec, self.world = spec, World()
        self.passed, self.failed = [], []
        self.yards: list[Yard] = []

    def base(self, suite: str = "bookworm") -> list[Path]:
        return [LAB / "image", Path(self.spec["roots"][suite])]

    def has(self, what: str, began: float) -> None:
        self.passed.append(what)
        print(f"tests/system/boot: ok: {what} ({time.monotonic() - began:.1f} s)", flush=True)

    @contextlib.contextmanager
    def check(self, what: str):
        began = time.monotonic()
        yield
        self.has(what, began)

    def play(self) -> int:
        began = time.monotonic()
        self.world.serve()
        stories = {}
        # First what takes longest. Each has an operator of its own, which goes as soon as its machine is there.
        self.dusk = {kind: Yard(self.world, kind, {kind: (Image(self.base(), change), {})}, settings) for kind, change, settings in (
            ("deadline", lambda upper: None, {}),
            ("silent", self.impatient, {}),
            ("gone", lambda upper: None, {}),
            ("no-way", self.no_way, {"TIMING__CREATED": "60s"}),
        )}
        self.yards.extend(self.dusk.values())
        kinds = {
            "plain": (Image(self.base()), {"launch": {"preRunnerScript": PRE_RUNNER}}),
            "spot": (Image(self.base()), {"usageClass": "spot"}),
            "no-nft": (Image(self.base(), self.no_nft), {}),
            "bad-script": (Image(self.base()), {"launch": {"preRunnerScript": "echo no disk; exit 3"}}),
            "no-agent": (Image(self.base(), self.no_agent), {}),
            # Whose digest is another's.
            "wrong-agent": (Image(self.base(), self.no_agent), {"launch": {"architecture": "arm64"}}),
        }
        stories["dusk"] = self.without_an_operator
        stories["life"] = self.life
        stories["broken"] = self.broken
        stories["fetch"] = self.fetch
        stories["spot"] = self.spot
        if self.spec["mirror"]:
            kinds["stock"] = (Image([LAB / "image", self.bare(), Path(self.spec["roots"]["bookworm"])]), {})
            stories["stock"] = self.stock
        if "trixie" in self.spec["roots"]:
            kinds["newer"] = (Image(self.base("trixie")), {})
            stories["newer"] = self.newer
        if "bullseye" in self.spec["roots"]:
            stories["unit"] = self.unit
        self.yard = Yard(self.world, "yard", kinds, {})
        self.yards.append(self.yard)
        self.has("a world with two yards", began)
        only = self.spec.get("only")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            told = {name: pool.submit(self.story, name, story) for name, story in stories.items() if not only or name in only}
            for name in told:
                told[name].result()
        for yard in self.yards:
            for wrong in yard.machines.wrong:
                self.failed.append(f"EC2: {wrong}")
        for why in self.failed:
            print(f"tests/system/boot: FAILED: {why}", flush=True)
        if self.spec["keep"]:
            self.keep(Path(self.spec["keep"]))
        elif self.failed:
            self.tell()
        print(f"tests/system/boot: {time.monotonic() - began:.0f} s\n{len(self.passed)} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed else 0

    def story(self, name: str, story) -> None:
        try:
            story()
        except Failed as why:
            self.failed.append(f"{name}: {why}")
        except Exception as why:  # noqa: BLE001  whatever it is, the other stories go on
            self.failed.append(f"{name}: {type(why).__name__}: {why}")
            traceback.print_exc()

    # A machine's whole life, with an operator.

    def life(self) -> None:
        yard = self.yard
        with self.check("a machine boots and runs a job of its first run"):
            run, machine = yard.provision("plain")
            said = yard.job(run, "echo I am $(id -un)")
            must("I am runyard-job" in said, said)
        with self.check("each step of a first boot is a line on the console"):
            says(machine, "first boot installs the agent", f"begins on {machine.id}", "the pre-runner script", "the first boot is done")
        with self.check("an agent that its image has is not fetched"):
            must(not any("fetches the agent" in line for line in machine.said()), machine.said())
        with self.check("a job has the variables of its image and of the operator, and not what would replace our check"):
            said = yard.job(run, 'echo "<$LAB_TOLD|$LAB_IMAGE|$LAB_LOGIN|$NO_PROXY|${ACTIONS_RUNNER_HOOK_JOB_COMPLETED:-none}>"', 'echo "<$PATH>"')
            must(f"<{lab.VARIABLES['LAB_TOLD']}|by the image too|by the image|{lab.VARIABLES['NO_PROXY']}|none>" in said, said)
            must(":/snap/bin>" in said, said)
        with self.check("a job reaches devices, and what the pre-runner script mounted is there for it and for the machine"):
            said = yard.job(run, *(f"exec 3<>/dev/{name} && echo opened {name}" for name in ("fuse", "net/tun", "kvm", "null")),
                            "cat /mnt/scratch/note")
            for word in ("opened fuse", "opened net/tun", "opened kvm", "opened null", "from the pre-runner script"):
                must(word in said, f"no {word!r}: {said}")
            must(machine.within("cat", "/mnt/scratch/note") == "from the pre-runner script\n", "the machine does not see it")
        with self.check("a job reaches the metadata service by neither address"):
            said = self.asks_for_metadata(run)
            must(said == ["000", "000"], f"it is told {said}")
            for address in SERVICE:
                must(self.token(machine, address), f"the agent has no answer from {address} either")
        with self.check("an agent that is killed comes back and its job goes on"):
            door = socket.create_server((WORLD, 0))

            def kill() -> None:
                door.settimeout(lab.DEADLINE)
                job = door.accept()[0]
                before = machine.within("systemctl", "show", "-P", "MainPID", "runyard-agent").strip()
                machine.within("kill", "-KILL", before)
                wait("the agent", lambda: machine.within("systemctl", "show", "-P", "MainPID", "runyard-agent").strip() not in ("0", before))
                job.sendall(b"the agent is back\n")
                job.close()
            said = yard.job(run, f"exec 3<>/dev/tcp/{WORLD}/{door.getsockname()[1]}; head -n 1 <&3", meanwhile=kill)
            must("the agent is back" in said, said)
        with self.check("the machine is cleaned and serves a second run"):
            yard.release(run)
            wait("its return to the pool", lambda: yard.record(machine)["state"].lower() in ("idle", "pooled"))
            again, second = yard.provision("plain")
            must(second.id == machine.id, f"{second.id} serves it, not {machine.id}")
            said = yard.job(again, "echo second")
            must("second" in said, said)
        with self.check("without our rules, which root takes away, the job reaches it: the check can fail"):
            machine.within("nft", "delete", "table", "inet", "runyard")
            # The job's own way out was among the rules.
            machine.within("nft", "add table ip lab; add chain ip lab p { type nat hook postrouting priority 100; }; "
                           "add rule ip lab p ip saddr 198.18.0.0/15 masquerade")
            must(self.asks_for_metadata(again)[0] == "401", "it is not told 401")
        with self.check("the operator ends it: EC2 switches it off, and its record says so"):
            yard.release(again)
            # Which would switch it off itself.
            machine.within("systemctl", "kill", "--signal=STOP", "--kill-who=main", "runyard-agent")
            yard.say("expire", machine.id, "--now", "--yes")
            wait("its end", lambda: not machine.is_on())
            must(machine.asked_to_end is not None, "it ended by itself")
            wait("its record", lambda: "terminated" in json.dumps(yard.record(machine)))

    def asks_for_metadata(self, run: int) -> list[str]:
        """What a job is told at both addresses: a status of HTTP, or 000 where there is no answer."""
        asks = [f"{CURL} '{address}/latest/meta-data/job-was-here' || true" for address in SERVICE]
        return re.findall(r"^(\d{3}) ", self.yard.job(run, *(f"{ask}; echo" for ask in asks)), re.MULTILINE)

    def token(self, machine: Machine, address: str) -> str:
        return machine.within("curl", "--silent", "--fail", "--max-time", "30", "-X", "PUT", "-H",
                              "X-aws-ec2-metadata-token-ttl-seconds: 60", f"{address}/latest/api/token")

    # What ends machines when the operator is gone.

    @staticmethod
    def impatient(upper: Path) -> None:
        """The watchdog's timer looks more often, that the test need not wait a minute more."""
        lab.write(upper, {"etc/systemd/system/runyard-fuse.timer.d/lab.conf": "[Timer]\nOnBootSec=10s\nOnUnitActiveSec=5s\nAccuracySec=1s\n"})

    def without_an_operator(self) -> None:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ended = [pool.submit(story, self.dusk[kind], kind) for kind, story in (
                ("deadline", self.its_deadline_passes), ("silent", self.its_agent_is_gone),
                ("gone", self.its_program_is_gone), ("no-way", self.its_table_is_out_of_reach))]
        machines = [one.result() for one in ended]
        with self.check("the operators that come back see that they have ended"):
            for yard in self.dusk.values():
                yard.operator = yard.operate()
            for machine in machines:
                yard = self.dusk[machine.kind]
                wait("its record", lambda yard=yard, machine=machine: "terminated" in json.dumps(yard.record(machine)))

    def its_deadline_passes(self, yard: Yard, kind: str) -> Machine:
        machine = self.alone(yard, kind)
        return self.switches_itself_off(machine, "a machine switches itself off at its deadline, with no operator",
                                        "powers off: its threshold and the grace have passed")

    def its_agent_is_gone(self, yard: Yard, kind: str) -> Machine:
        machine = self.alone(yard, kind)
        # The agent cannot come back: its unit fails before it is there.
        lab.write(Path(f"/proc/{machine.init()}/root"), {
            "run/systemd/system/runyard-agent.service.d/broken.conf": "[Service]\nExecStartPre=/bin/false\n"})
        machine.within("systemctl", "daemon-reload")
        machine.within("systemctl", "kill", "--signal=KILL", "--kill-who=main", "runyard-agent")
        return self.switches_itself_off(machine, "the watchdog ends a machine whose agent is gone for good",
                                        "powers off: the agent's deadline has passed and it did not act")

    def its_program_is_gone(self, yard: Yard, kind: str) -> Machine:
        machine = self.alone(yard, kind)
        machine.within("rm", "/usr/local/bin/runyard-agent")
        machine.within("systemctl", "kill", "--signal=KILL", "--kill-who=main", "runyard-agent")
        return self.switches_itself_off(machine, "the watchdog ends a machine whose agent's program is removed",
                                        "powers off after three in a row: the watchdog cannot run")

    def its_table_is_out_of_reach(self, yard: Yard, kind: str) -> Machine:
        run = yard.ask(kind)
        machine = yard.launched(kind)
        wait("its record", lambda: machine.id in yard.say("get", "instances", "-o", "json"))
        self.ends(yard)
        self.switches_itself_off(machine, "a machine that cannot reach its table says so and ends at its boot deadline",
                                 "powers off: no record within the boot deadline")
        says(machine, "cannot read this machine's record")
        # No machine is to take its place.
        yard.say("release", "--run-id", str(run), "--repository", lab.REPOSITORY)
        return machine

    def alone(self, yard: Yard, kind: str) -> Machine:
        """A machine that a run holds, and whose operator is gone."""
        _, machine = yard.provision(kind, "--max-runtime", "2m")
        self.ends(yard)
        return machine

    @staticmethod
    def ends(yard: Yard) -> None:
        yard.operator.terminate()
        yard.operator.wait(lab.DEADLINE)

    def switches_itself_off(self, machine: Machine, what: str, why: str) -> Machine:
        with self.check(what):
            wait(f"the end of {machine.kind}", machine.began_and_is_off)
            must(machine.asked_to_end is None, "EC2 ended it")
            says(machine, why)
        return machine

    # First boots that cannot succeed.

    @staticmethod
    def no_nft(upper: Path) -> None:
        for name in ("nft", "iptables", "ip6tables"):
            (upper / "usr/sbin").mkdir(parents=True, exist_ok=True)
            os.mknod(upper / "usr/sbin" / name, stat.S_IFCHR, 0)

    @staticmethod
    def no_way(upper: Path) -> None:
        """Where the table should be, nobody answers."""
        lab.write(upper, {"etc/systemd/system/runyard-agent.service.d/lab.conf":
                          f"[Service]\nEnvironment=AWS_ENDPOINT_URL_DYNAMODB=http://{WORLD}:9\n"})

    @staticmethod
    def no_agent(upper: Path) -> None:
        (upper / "usr/local/bin").mkdir(parents=True, exist_ok=True)
        os.mknod(upper / "usr/local/bin/runyard-agent", stat.S_IFCHR, 0)

    def fetch(self) -> None:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            wrong = pool.submit(self.ends_at_once, "wrong-agent", "a machine whose agent has another digest says so and ends", "agent-digest",
                                ["first boot fetches the agent", f"the agent from {lab.AGENT} has not the SHA-256 000",
                                 "powers off: first boot failed while it fetched the agent"])
            with self.check("a machine of an image without the agent fetches it, and runs a job"):
                run, machine = self.yard.provision("no-agent")
                says(machine, "first boot fetches the agent", "first boot installs the agent", "the first boot is done")
                must("fetched" in self.yard.job(run, "echo fetched"), "no job")
                self.yard.release(run)
            wrong.result()

    def broken(self) -> None:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            both = [pool.submit(self.ends_at_once, *one) for one in (
                ("no-nft", "a machine without a packet filter says so and ends at once", "no-packet-filter",
                 ["installs nftables", "the first boot failed: nft", "powers off: first boot failed"]),
                ("bad-script", "a machine whose pre-runner script fails says so and ends", "pre-runner-script",
                 ["the first boot failed: the pre-runner script ended with exit status: 3: no disk", "powers off: "]))]
        for one in both:
            one.result()

    def ends_at_once(self, kind: str, what: str, cause: str, told: list[str]) -> None:
        with self.check(what):
            run = self.yard.ask(kind)
            machine = self.yard.launched(kind)
            wait(f"the end of {kind}", machine.began_and_is_off)
            self.yard.release(run)
            says(machine, *told)
        with self.check(f"`debug` names the cause {cause} of a machine that has ended"):
            wait(f"the cause of {kind}", lambda: self.first_cause(machine) == cause)

    def first_cause(self, machine: Machine) -> str | None:
        causes = json.loads(self.yard.say("debug", f"instance/{machine.id}", "-o", "json"))["causes"]
        return causes[0]["cause"] if causes else None

    def bare(self) -> Path:
        """A layer over the root that takes from it what user data would install, and has a mirror of it."""
        bare, work, root = (LAB / name for name in ("bare", "bare-work", "bare-root"))
        for directory in (bare, work, root):
            directory.mkdir()
        subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={self.spec['roots']['bookworm']},upperdir={bare},workdir={work}", "none",
                        str(root)], check=True)
        subprocess.run(["chroot", str(root), "dpkg", "--purge", "--force-depends", "nftables", "git", "libicu72"], check=True,
                       capture_output=True)
        shutil.copytree(self.spec["mirror"], root / "srv/mirror")
        lab.write(root, {"etc/apt/sources.list": "deb [trusted=yes] file:/srv/mirror ./\n"})
        subprocess.run(["umount", str(root)], check=True)
        return bare

    def stock(self) -> None:
        with self.check("user data installs what a stock image lacks, and a job runs there"):
            run, machine = self.yard.provision("stock")
            says(machine, "first boot installs nftables git libicu which the image lacks", "first boot installs the agent")
            must("could not install" not in "".join(machine.said()), machine.said())
            must("libicuuc" in machine.within("ldconfig", "-p"), "no libicu")
            must("git version" in self.yard.job(run, "git --version"), "no git")
            self.yard.release(run)

    # A machine that EC2 takes back.

    def spot(self) -> None:
        yard = self.yard
        with self.check("a spot machine tells that EC2 takes it back, as its metadata service says"):
            _, machine = yard.provision("spot")
            imds.take_back(machine.tree, "2026-11-22T12:00:00Z")
            wait("the notice", lambda: "2026-11-22T12:00:00Z" in json.dumps(yard.record(machine)))

    # Another systemd.

    def newer(self) -> None:
        with self.check("a machine of Debian 13 boots and runs a job"):
            run, machine = self.yard.provision("newer")
            version = machine.within("systemctl", "--version").split()[1]
            must(int(version) > 252, version)
            self.yard.job(run, "exec 3<>/dev/fuse; echo on $(id -un)")
            self.yard.release(run)

    def unit(self) -> None:
        """What our unit takes from jobs by the systemd of Debian 11, and what it would take with what it had once."""
        with self.check("by systemd 247 our unit leaves devices and mounts, which ProtectClock and ProtectProc would take"):
            own = [line for line in Path(self.spec["unit"]).read_text().partition("[Service]")[2].partition("[Install]")[0].splitlines()
                   if not re.match(r"(Type|Exec|Restart|Watchdog|Notify|Timeout|KillMode|Runtime)", line)]
            script = ("for name in fuse net/tun kvm; do (: <>/dev/$name) && echo PROBE %N opened $name || echo PROBE %N denied $name; done; "
                      "mkdir -p /mnt/%N; mount -t tmpfs none /mnt/%N")
            files = {"etc/cloud/cloud-init.disabled": ""}
            variants = {"ours": "", "clock": "ProtectClock=yes", "proc": "ProtectProc=invisible"}
            for name, more in variants.items():
                service = "\n".join([*own, more, "Type=oneshot", "StandardOutput=journal+console", f"ExecStart=/bin/sh -c '{script}'"])
                files[f"etc/systemd/system/{name}.service"] = f"[Unit]\nAfter=lab.service\n[Service]\n{service}\n"
            units = " ".join(f"{name}.service" for name in variants)
            files["etc/systemd/system/look.service"] = (
                f"[Unit]\nWants={units}\nAfter={units}\n[Service]\nType=oneshot\nStandardOutput=journal+console\n"
                "ExecStart=/bin/sh -c 'for name in ours clock proc; do grep -q /mnt/$name /proc/self/mountinfo && echo PROBE $name seen || echo PROBE $name unseen; done; systemctl poweroff'\n")
            told = {"InstanceId": "i-0unit", "Placement": {"AvailabilityZone": f"{lab.REGION}a"}, "InstanceType": "none", "ImageId": "none",
                    "Tags": [{"Key": CLASS, "Value": "unit"}]}

            def change(upper: Path) -> None:
                lab.write(upper, files)
                wants = upper / "etc/systemd/system/multi-user.target.wants"
                wants.mkdir()
                (wants / "look.service").symlink_to("../look.service")
            machine = Machine(told, next(Machines.numbers), "", Image(self.base("bullseye"), change), LAB / "machines/unit", ("", ""))
            machine.boot()
            wait("its end", lambda: not machine.is_on())
            probes = set(re.findall(r"PROBE (.*)", machine.console()))
            devices = ("fuse", "net/tun", "kvm")
            wanted = {f"ours opened {name}" for name in devices} | {f"clock denied {name}" for name in devices} | {
                "ours seen", "clock seen", "proc unseen"}
            must(wanted <= probes, f"{sorted(wanted - probes)} are not among {sorted(probes)}: {machine.console()[-3000:]}")

    # What there is to read when something went wrong.

    def tell(self) -> None:
        """The last of it; `--keep` has all."""
        for yard in self.yards:
            print(f"==> the operator of {yard.table}\n" + "\n".join(self.world.log(f"operator-{yard.table}").splitlines()[-15:]))
            for machine in yard.machines.all.values():
                lines = [line for line in machine.console().splitlines() if not NOISE.search(line)]
                print(f"==> the console of {machine.kind} {machine.id}\n" + "\n".join(line[:300] for line in lines[-30:]))
                asked = [f"{status} {path}" for address, path, status in self.world.metadata.asked if address == machine.address]
                print(f"==> what {machine.kind} asked of its metadata service\n" + "\n".join(asked[:40]))

    def keep(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for log in LAB.glob("*.log"):
            (place / log.name).write_bytes(log.read_bytes())
        for yard in self.yards:
            for machine in yard.machines.all.values():
                told = [machine.console()]
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    told.append(machine.within("journalctl", "--no-pager", "-o", "short-monotonic", check=False))
                if not machine.is_on():
                    journal = machine.place / "root/var/log/journal"
                    done = subprocess.run(["journalctl", "--no-pager", "-o", "short-monotonic", f"--directory={journal}"], capture_output=True, text=True)
                    told.append(done.stdout)
                (place / f"{machine.kind}-{machine.name}.txt").write_text("\n".join(told))
        (place / "metadata.json").write_text(json.dumps(self.world.metadata.asked, indent=0))


PRE_RUNNER = """#!/bin/sh
set -eu
truncate -s 16M /var/disk
mkfs.ext4 -q /var/disk
mkdir -p /mnt/scratch
mount -o loop /var/disk /mnt/scratch
echo from the pre-runner script >/mnt/scratch/note
"""


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["PATH"] = PATH
    lab.build(spec["programs"])
    Machine.first_user = spec["users"]
    return Stories(spec).play()


if __name__ == "__main__":
    # Process 1 has to wait for everybody's children: what plays is one of them.
    if (player := os.fork()) == 0:
        code = 1
        try:
            code = main()
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    while True:
        pid, status = os.wait()
        if pid == player:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
