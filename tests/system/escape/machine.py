"""The laboratory's machine: `RUNYARD_AGENT` names this. What cloud-init and systemd do on EC2 it does before it becomes the
real agent: `runyard-agent install` makes the job user and writes the unit, and what the unit says is applied to this
process. A directive that it cannot apply is named in `not-applied`, never passed over in silence.
"""

import ctypes
import json
import os
import platform
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path

AGENT = "/usr/local/bin/runyard-agent"
CONFIG = Path("/etc/runyard/agent.toml")
UNIT = Path("/etc/systemd/system/runyard-agent.service")
LAB = Path("/srv/lab")
JOB_USER = "ci-runner"
LIBC = ctypes.CDLL(None, use_errno=True)

# Numbers of the system calls that the unit's directives forbid: x86-64, arm64.
CALLS = {
    "socket": (41, 198), "personality": (135, 92), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "sysfs": (139, None), "ustat": (136, None),
    "uselib": (134, None), "_sysctl": (156, None), "create_module": (174, None), "query_module": (178, None),
    "get_kernel_syms": (177, None), "vserver": (236, None), "security": (185, None), "tuxcall": (184, None),
    "afs_syscall": (183, None), "getpmsg": (181, None), "putpmsg": (182, None),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "mount": (165, 40), "umount2": (166, 39), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "kcmp": (312, 272), "ptrace": (101, 117),
}
GROUPS = {
    "@cpu-emulation": ["modify_ldt"],
    "@obsolete": ["sysfs", "ustat", "uselib", "_sysctl", "create_module", "query_module", "get_kernel_syms", "vserver",
                  "security", "tuxcall", "afs_syscall", "getpmsg", "putpmsg"],
    "@raw-io": ["iopl", "ioperm"],
    "@clock": ["settimeofday", "clock_settime", "adjtimex", "clock_adjtime"],
    "@keyring": ["keyctl", "add_key", "request_key"],
    "@module": ["init_module", "finit_module", "delete_module"],
    "@swap": ["swapon", "swapoff"],
    "@reboot": ["reboot"],
}
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40, "AF_ALG": 38}
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
EPERM, EAFNOSUPPORT = 1, 97


def directives(unit: str) -> list[tuple[str, str]]:
    """What the unit's section [Service] says, in its order."""
    section, found = "", []
    for line in unit.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            found.append(tuple(part.strip() for part in line.split("=", 1)))
    return found


class Filter:
    """A seccomp program, put together call by call."""

    LOAD, EQUAL, GREATER, AND, ANSWER = 0x20, 0x15, 0x25, 0x54, 0x06
    ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0

    def __init__(self) -> None:
        self.column, self.arch = ARCHITECTURES[platform.machine()]
        self.native, self.code = False, []

    def head(self) -> list[tuple[int, int, int, int]]:
        """What becomes of a call of another architecture's numbers, which nothing below could judge: with
        `SystemCallArchitectures=native` systemd has its thread killed, and without it lets it through."""
        other = self.KILL if self.native else self.ALLOW
        code = [(self.LOAD, 0, 0, 4), (self.EQUAL, 1, 0, self.arch), (self.ANSWER, 0, 0, other)]
        if self.column == 0:
            # Those of x32 are among x86-64's.
            code += [(self.LOAD, 0, 0, 0), (self.GREATER, 0, 1, 0x3FFFFFFF), (self.ANSWER, 0, 0, other)]
        return code

    def number(self, call: str) -> int | None:
        return CALLS[call][self.column]

    def judge(self, call: str, body: list[tuple[int, int, int, int]]) -> None:
        """For this call, this; it is to answer or to fall through."""
        if (number := self.number(call)) is not None:
            self.code += [(self.LOAD, 0, 0, 0), (self.EQUAL, 0, len(body), number), *body]

    def forbid(self, call: str) -> None:
        self.judge(call, [(self.ANSWER, 0, 0, self.ERRNO | EPERM)])

    def install(self) -> None:
        code = [*self.head(), *self.code, (self.ANSWER, 0, 0, self.ALLOW)]
        program = b"".join(struct.pack("HBBI", *line) for line in code)
        held = ctypes.create_string_buffer(program)
        head = struct.pack("HxxxxxxP", len(code), ctypes.addressof(held))
        if LIBC.prctl(22, 2, ctypes.create_string_buffer(head), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")


class Service:
    """What is to become of this process before it is the agent."""

    def __init__(self, said: list[tuple[str, str]]) -> None:
        self.filter, self.unknown = Filter(), []
        self.no_new_privileges, self.dropped, self.hidden = False, set(), False
        for key, value in said:
            self.apply(key, value)

    def apply(self, key: str, value: str) -> None:
        yes = value in ("yes", "true", "on", "1")
        deny = self.filter.ERRNO
        if key in ("Type", "NotifyAccess", "TimeoutStartSec", "WatchdogSec", "ExecStart", "Restart", "RestartSec", "KillMode",
                   "Delegate", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve",
                   "SystemCallErrorNumber", "TimeoutStopSec", "ExecStopPost"):
            return  # Of systemd's own work, or done below.
        if key == "ExecStartPre":
            subprocess.run(value.lstrip("+-!@:").split(), check=True)
        elif key == "OOMScoreAdjust":
            try:
                Path("/proc/self/oom_score_adj").write_text(value)
            except PermissionError:
                self.unknown.append(f"{key}={value}")
        elif key == "NoNewPrivileges":
            self.no_new_privileges = yes
        elif key == "ProtectProc" and value == "invisible":
            self.hidden = True
        elif key == "CapabilityBoundingSet" and value.startswith("~"):
            self.dropped |= {name.removeprefix("CAP_").lower() for name in value[1:].split()}
        elif key == "ProtectClock" and yes:
            self.dropped |= {"sys_time", "wake_alarm"}
            for call in GROUPS["@clock"]:
                self.filter.forbid(call)
        elif key == "ProtectKernelLogs" and yes:
            self.dropped.add("syslog")
            self.filter.forbid("syslog")
        elif key == "ProtectHostname" and yes:
            LIBC.unshare(0x04000000)
            self.filter.forbid("sethostname")
            self.filter.forbid("setdomainname")
        elif key == "LockPersonality" and yes:
            at, load = Filter.ALLOW, [(Filter.LOAD, 0, 0, 16)]
            self.filter.judge("personality", [
                *load, (Filter.EQUAL, 2, 0, 0), (Filter.EQUAL, 1, 0, 0xFFFFFFFF), (Filter.ANSWER, 0, 0, deny | EPERM),
                (Filter.ANSWER, 0, 0, at)])
        elif key == "RestrictRealtime" and yes:
            # Other, batch and idle, each with or without leave to pass it on.
            self.filter.judge("sched_setscheduler", [
                (Filter.LOAD, 0, 0, 24), (Filter.AND, 0, 0, 0xBFFFFFFF), (Filter.EQUAL, 3, 0, 0), (Filter.EQUAL, 2, 0, 3),
                (Filter.EQUAL, 1, 0, 5), (Filter.ANSWER, 0, 0, deny | EPERM), (Filter.ANSWER, 0, 0, Filter.ALLOW)])
        elif key == "RestrictAddressFamilies" and not value.startswith("~"):
            known = [FAMILIES[name] for name in value.split()]
            body = [(Filter.LOAD, 0, 0, 16)]
            body += [(Filter.EQUAL, len(known) - index, 0, family) for index, family in enumerate(known)]
            body += [(Filter.ANSWER, 0, 0, deny | EAFNOSUPPORT), (Filter.ANSWER, 0, 0, Filter.ALLOW)]
            self.filter.judge("socket", body)
        elif key == "SystemCallArchitectures" and value == "native":
            self.filter.native = True
        elif key == "SystemCallFilter" and value.startswith("~"):
            for word in value[1:].split():
                calls = GROUPS.get(word) or ([word] if word in CALLS else [])
                if not calls:
                    self.unknown.append(f"{key}=~{word}")
                for call in calls:
                    self.filter.forbid(call)
        elif key.startswith("Limit") and hasattr(resource, f"RLIMIT_{key[5:]}"):
            limit = [resource.RLIM_INFINITY if part == "infinity" else int(part) for part in value.split(":")]
            resource.setrlimit(getattr(resource, f"RLIMIT_{key[5:]}"), (limit[0], limit[-1]))
        elif key == "UMask":
            os.umask(int(value, 8))
        elif key == "Environment":
            name, _, word = value.strip('"').partition("=")
            os.environ[name] = word
        else:
            self.unknown.append(f"{key}={value}")

    def become(self, words: list[str]) -> None:
        if self.hidden:
            LIBC.unshare(0x00020000)
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "-t", "proc", "-o", "hidepid=invisible", "proc", "/proc"], check=True)
        # KeyringMode=private is systemd's default for what it starts: a session keyring with nothing in it.
        LIBC.syscall(250 if platform.machine() == "x86_64" else 219, 1, None)
        before = []
        if self.no_new_privileges:
            LIBC.prctl(38, 1, 0, 0, 0)
        if self.dropped:
            before = ["setpriv", "--bounding-set=" + ",".join(f"-{name}" for name in sorted(self.dropped))]
        self.filter.install()
        words = [*before, *words]
        os.execvp(words[0], words)


def configure(given: Path, isolated: bool = True) -> None:
    """The configuration that user data would write, with what local mode gave this agent."""
    text = given.read_text()
    own = {"state_dir": "/run/runyard", "work_dir": "/var/lib/runyard", "power.off": "systemctl", "job_user": JOB_USER}
    for key, value in own.items():
        text = re.sub(rf"^{re.escape(key)} = .*\n", "", text, flags=re.MULTILINE)
        text = f'{key} = "{value}"\n{text}'
    if not isolated:
        text = f"isolation.required = false\n{text}"
    CONFIG.parent.mkdir(mode=0o700, exist_ok=True)
    CONFIG.touch(mode=0o600)
    CONFIG.write_text(text)


def main() -> None:
    lab = json.loads((LAB / "lab.json").read_text())
    configure(Path(sys.argv[sys.argv.index("--config") + 1]), not lab.get("open"))
    # The runtime directory is the unit's, new for each boot; one machine follows the other here.
    Path("/run/runyard").mkdir(mode=0o700, exist_ok=True)
    subprocess.run([AGENT, "install", "--config", str(CONFIG)], check=True)
    if "group" in lab:
        group = Path(lab["group"]) / "system.slice" / "runyard-agent.service"
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    limits = lab["limits"]
    if "processes" in limits:
        # It counts what each user has; root is bound by none.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
    # As systemd sets it: 1024 for those that do not ask for more.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 524288 if most == resource.RLIM_INFINITY else min(most, 524288)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits.get("files", 1024), most), most))
    service = Service(directives(UNIT.read_text()))
    (LAB / "not-applied").write_text(json.dumps(service.unknown))
    service.become([AGENT, "--config", str(CONFIG)])


if __name__ == "__main__":
    main()
