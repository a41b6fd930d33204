"""The roots that machines are booted from: a Debian made by debootstrap, with what a machine image is to bring and
cloud-init as on EC2. Each stands in the tests' home (`tests/engines/place.py`) until what goes into it changes.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "engines"))
import place  # noqa: E402

# Of each suite, the package that brings libicu.
SUITES = {"bookworm": "libicu72", "trixie": "libicu76", "bullseye": "libicu67"}
BASE = ["systemd", "systemd-sysv", "dbus", "iproute2", "ca-certificates", "curl", "procps"]
# What docs/how-to/install.md wants of a machine image.
IMAGE = ["nftables", "git"]
# debootstrap cannot resolve its virtual dependencies: with apt, inside.
LATER = ["cloud-init"]


class Unmade(Exception):
    """There is no root; why."""


def tool(name: str) -> str:
    return str(place.program("boot", name))


def environment(libraries: bool = False) -> dict[str, str]:
    """Of programs that were unpacked; with the libraries that came with them."""
    root = place.home() / "boot/root"
    found = [str(path) for place_ in ("usr/lib/*-linux-gnu*/systemd", "usr/lib/*-linux-gnu*") for path in root.glob(place_)]
    names = os.environ | {"DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap")} if root.is_dir() else dict(os.environ)
    names["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return names | ({"LD_LIBRARY_PATH": ":".join(found)} if libraries and found else {})


def mirror() -> list[str]:
    """The one that apt is set up with, if it has one of Debian's; else debootstrap's own."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"],
                          capture_output=True, text=True).stdout.split()
    return said[:1]


def packages(suite: str) -> list[str]:
    return [*BASE, *IMAGE, SUITES[suite]]


def one_at_a_time(make: Callable[[str], Path]) -> Callable[[str], Path]:
    """What several tests make where it does not stand: the first does, and the others wait."""
    @functools.wraps(make)
    def held(suite: str) -> Path:
        with place.alone(f"{make.__name__}-{suite}"):
            return make(suite)
    return held


@one_at_a_time
def root(suite: str) -> Path:
    """Of a suite, made now if it does not stand; takes one to two minutes then."""
    home = place.home() / "boot-roots"
    made, stamp = home / suite, home / f"{suite}.stamp"
    wanted = hashlib.sha256(repr((suite, packages(suite), LATER)).encode()).hexdigest()
    if made.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        return made
    home.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    for old in (made, home / f"{suite}.new"):
        subprocess.run(["rm", "-rf", "--one-file-system", str(old)], check=True)
    new = home / f"{suite}.new"
    print(f"tests/system/boot: making a root of {suite} in {made}", flush=True)
    where = mirror()
    log = home / f"{suite}.log"
    steps = [
        [tool("debootstrap"), "--variant=minbase", f"--include={','.join(packages(suite))}", suite, str(new), *where],
        ["chroot", str(new), "apt-get", "-qq", "update"],
        ["chroot", str(new), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends", "install", *LATER],
        ["chroot", str(new), "apt-get", "clean"],
    ]
    with log.open("wb") as out:
        for step in steps:
            try:
                done = subprocess.run(step, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=600)
            except (OSError, subprocess.TimeoutExpired) as why:
                raise Unmade(f"{step[0]}: {why}") from why
            if done.returncode != 0:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise Unmade(f"{Path(step[0]).name} ended with {done.returncode}: {' '.join(last)} ({log})")
    new.rename(made)
    stamp.write_text(wanted)
    return made


@one_at_a_time
def stock(suite: str) -> Path:
    """A mirror of what user data installs where an image lacks it, as files; made once for a root."""
    made = place.home() / "boot-roots" / f"{suite}.mirror"
    if not (made / "Packages").is_file():
        inside = root(suite) / "var/tmp/mirror"
        script = """set -eu; cd /var/tmp/mirror; apt-get -qq -o APT::Sandbox::User= download "$@"
for file in *.deb; do
  dpkg-deb -f "$file"
  printf 'Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d ' ' -f 1)"
done >Packages"""
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir()
        try:
            subprocess.run(["chroot", str(root(suite)), "sh", "-c", script, "sh", *IMAGE, SUITES[suite]], check=True, timeout=300,
                           env=environment(), stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as why:
            raise Unmade(f"a mirror of {', '.join(IMAGE)}: {why}") from why
        shutil.move(inside, made)
    return made


SMALL = ["ca-certificates", "curl", "sudo"]


@one_at_a_time
def small(suite: str) -> Path:
    """A root without systemd, as of a container; made now if it does not stand, in a minute."""
    home = place.home() / "small-roots"
    made, stamp, new, log = home / suite, home / f"{suite}.stamp", home / f"{suite}.new", home / f"{suite}.log"
    wanted = hashlib.sha256(repr((suite, SMALL)).encode()).hexdigest()
    if made.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        return made
    home.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    for old in (made, new):
        subprocess.run(["rm", "-rf", "--one-file-system", str(old)], check=True)
    print(f"making a root of {suite} in {made}, a minute", flush=True)
    step = [tool("debootstrap"), "--variant=minbase", f"--include={','.join(SMALL)}", suite, str(new), *mirror()]
    with log.open("wb") as out:
        try:
            done = subprocess.run(step, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as why:
            raise Unmade(f"{step[0]}: {why}") from why
    if done.returncode != 0:
        raise Unmade(f"debootstrap ended with {done.returncode} ({log})")
    new.rename(made)
    stamp.write_text(wanted)
    return made
