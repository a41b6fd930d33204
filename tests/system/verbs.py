"""How the tests in Python run a verb of `runyard`. An engine's answer comes too late on a machine that is busy with other
things; then a verb says so, and is run again, as a person does."""

import subprocess
import time

WITHIN = 600
"""Seconds after which what hangs is given up: it judges nothing."""


def run(command: list, **more) -> subprocess.CompletedProcess:
    """A command that calls `runyard`, once it has ended; `more` is what `subprocess.run` takes."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": WITHIN} | more
    if "input" not in given:
        given.setdefault("stdin", subprocess.DEVNULL)
    end = time.monotonic() + WITHIN
    while True:
        done = subprocess.run(command, **given)
        late = done.returncode == 1 and "request has timed out" in done.stdout + (done.stderr or "")
        if not late or time.monotonic() > end:
            return done


def said(command: list, **more) -> str:
    """What a command printed that is to succeed."""
    done = run(command, **more)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr.strip()[-400:]}"
    return done.stdout
