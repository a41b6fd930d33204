"""A job's step in the laboratory: looks or plants as /srv/lab/batch.json says, and tells the laboratory over loopback what
came of it, for a job's log is short.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request

import traces

SCRIPTS = "/srv/lab/scripts"
LIBRARY = "/srv/lab/tests/library.sh"


def script(plant: dict, kind: str, limit: float) -> tuple[int | None, str]:
    """Runs one; its code, none if it took too long, and what it said. Nothing it leaves behind holds us."""
    environment = os.environ | {"C": plant["canary"][0] + "-" + plant["canary"][1], "BASH_ENV": LIBRARY, "ID": plant["id"]}
    with tempfile.TemporaryFile() as said:
        command = ["bash", "-e", "-o", "pipefail", f"{SCRIPTS}/{plant['id']}.{kind}"]
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            code = None
        said.seek(0)
        return code, said.read(4000).decode(errors="replace").strip()


def look(batch: dict, plants: list[dict]) -> dict[str, str]:
    """What stands there, by id: by a look everywhere, and by each plant's own."""
    known = {plant["canary"][0].removeprefix("CNRY-") for plant in plants}
    found = {name: "; ".join(places) for name, places in traces.look(batch["since"]).items() if name in known}
    for plant in plants:
        if "find" in plant:
            code, said = script(plant, "find", 120)
            if code == 0:
                found[plant["id"]] = said or "its own look finds it"
    return found


def tell(reports: str, what: str, report: dict) -> None:
    data = json.dumps(report).encode()
    urllib.request.urlopen(f"{reports}/{what}", data=data, timeout=30).close()


def main(what: str, which: str, word: str) -> None:
    """`look` or `plant`, of which plants of the batch, told under this word."""
    with open("/srv/lab/batch.json") as file:
        batch = json.load(file)
    if what == "look":
        tell(batch["reports"], word, look(batch, batch[which]))
        return
    for plant in batch[which]:
        # It has a job of its own.
        if "job" in plant:
            continue
        code, said = script(plant, "plant", plant.get("limit", 120))
        tell(batch["reports"], word, {plant["id"]: [code, said]})


if __name__ == "__main__":
    main(*sys.argv[1:])
