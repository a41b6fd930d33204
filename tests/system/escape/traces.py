"""Where does a canary stand? Names, contents, links and attributes of whatever changed since the laboratory began; words,
environment, memory and descriptors of processes; names of sockets, keys and queues. Looked for by root, and by jobs: then
what a job may see.
"""

import os
import re
import stat

CANARY = re.compile(rb"CNRY-([a-z0-9-]+)-[0-9a-f]{8}")
# Made by the kernel, the laboratory's own, or the system's programs, which no plant is about and which are many.
SKIPPED = {b"/proc", b"/sys", b"/srv", b"/dev/pts", b"/usr/lib", b"/usr/share", b"/usr/bin", b"/usr/sbin", b"/usr/libexec"}
LARGEST = 1 << 20
# An entry to look into, at most so many of one directory; names are all looked at.
CONTENTS = 2000


def canaries(data: bytes) -> set[str]:
    return {match.decode() for match in CANARY.findall(data)}


class Traces:
    """What was found: a canary's id with the places it stands in, a few of them."""

    def __init__(self, since: float) -> None:
        self.since, self.found = since, {}

    def note(self, data: bytes, where: str) -> None:
        for name in canaries(data):
            places = self.found.setdefault(name, [])
            if len(places) < 3 and where not in places:
                places.append(where)

    def entry(self, path: bytes, name: bytes, read: bool) -> None:
        where = ascii(path.decode(errors="surrogateescape"))[1:-1]
        self.note(name, where)
        try:
            facts = os.lstat(path)
            if facts.st_ctime < self.since:
                return
            for attribute in os.listxattr(path, follow_symlinks=False):
                self.note(attribute.encode() + b" " + os.getxattr(path, attribute, follow_symlinks=False), f"{where} ({attribute})")
            if stat.S_ISLNK(facts.st_mode):
                self.note(os.readlink(path), where)
            elif read and stat.S_ISREG(facts.st_mode) and facts.st_blocks * 512 <= LARGEST:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with os.fdopen(descriptor, "rb") as file:
                    self.note(file.read(LARGEST), where)
        except OSError:
            pass

    def files(self, top: bytes = b"/") -> None:
        """Descends by name alone, so that no depth ends it."""
        open_dirs = [top]
        while open_dirs:
            directory = open_dirs.pop()
            try:
                entries = list(os.scandir(directory))
            except OSError:
                continue
            for index, entry in enumerate(entries):
                if entry.path in SKIPPED:
                    continue
                self.entry(entry.path, entry.name, index < CONTENTS)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        open_dirs.append(entry.path)
                except OSError:
                    pass

    def processes(self) -> None:
        own = set()
        pid = os.getpid()
        while pid > 1:
            own.add(pid)
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    pid = int(file.read().rsplit(b")", 1)[1].split()[1])
            except OSError:
                break
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in own:
                continue
            for file in ("cmdline", "environ", "maps"):
                try:
                    with open(f"/proc/{name}/{file}", "rb") as data:
                        self.note(data.read(), f"process {name} ({file})")
                except OSError:
                    pass
            try:
                for descriptor in os.listdir(f"/proc/{name}/fd"):
                    self.note(os.readlink(f"/proc/{name}/fd/{descriptor}".encode()), f"process {name} (descriptor)")
            except OSError:
                pass

    def kernel(self) -> None:
        for file in ("/proc/net/unix", "/proc/keys", "/proc/mounts"):
            try:
                with open(file, "rb") as data:
                    self.note(data.read(), file)
            except OSError:
                pass
        self.note("\n".join(f"{name}={value}" for name, value in os.environ.items()).encode(errors="replace"), "own environment")


def look(since: float) -> dict[str, list[str]]:
    """Everywhere."""
    traces = Traces(since)
    traces.files()
    traces.processes()
    traces.kernel()
    return traces.found
