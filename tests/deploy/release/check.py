"""Do the scripts of a release stop at what is wrong, and tag what they should? In a clone, with files that stand for the
programs. `config/release/rehearse` does the same with real ones, and takes as long as it takes to build them."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
PLACES = {
    "Cargo.toml": f'version = "{VERSION}"',
    "charts/runyard/Chart.yaml": f'appVersion: "{VERSION}"',
    "Dockerfile": f"ARG VERSION={VERSION}",
    "CHANGELOG.md": f"## {VERSION}",
}
ADDRESS = f"https://example.com/v{VERSION}"


class Clone:
    def __init__(self, at):
        self.at = pathlib.Path(at)
        subprocess.run(["git", "clone", "--quiet", "--no-tags", f"file://{ROOT}", self.at], check=True)
        # What is being worked on, too: the scripts as they are now.
        for script in (ROOT / "config" / "release").iterdir():
            shutil.copy(script, self.at / "config" / "release" / script.name)
        self.git("config", "user.name", "test")
        self.git("config", "user.email", "test@localhost")
        changes = self.at / "CHANGELOG.md"
        if f"## {VERSION}\n" not in changes.read_text():
            changes.write_text(changes.read_text().replace("## Unreleased\n", f"## {VERSION}\n", 1))
        self.commit()

    def git(self, *arguments):
        command = ["git", "-C", self.at, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change")

    def run(self, script, *arguments):
        command = [self.at / "config" / "release" / script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


def refused(ended, words):
    assert ended.returncode != 0 and words in ended.stderr, ended


def every_place_of_the_version_is_checked(clone):
    ended = clone.run("check", VERSION)
    assert ended.returncode == 0, ended
    for name, line in PLACES.items():
        path = clone.at / name
        before = path.read_text()
        assert line in before, f"{name} does not say {line}"
        path.write_text(before.replace(line, line.replace(VERSION, "9.9.9"), 1))
        clone.commit()
        refused(clone.run("check", VERSION), name)
        path.write_text(before)
        clone.commit()
    refused(clone.run("check", "v1"), "is no version")
    (clone.at / "left").write_text("something")
    refused(clone.run("check", VERSION), "uncommitted")
    (clone.at / "left").unlink()


def a_release_is_made_only_where_the_owner_is_named(clone):
    named = next(line for line in (clone.at / "config/release/owner").read_text().splitlines() if not line.startswith("#"))
    assert re.fullmatch(r"[\w-]+/[\w.-]+", named), named
    ended = clone.run("check", VERSION, named)
    assert ended.returncode == 0, ended
    refused(clone.run("check", VERSION, "somebody/else"), "somebody/else")


def a_release_lacks_no_file(clone, dist):
    names = [f"{one}-linux-{machine}" for one in ("runyard", "runyard-agent") for machine in ("x86_64", "aarch64")]
    names += [f"{name}.cdx.json" for name in names] + [f"runyard-{VERSION}.tgz"]
    for name in names:
        (dist / name).write_text(name)
    ended = clone.run("gather", VERSION, dist)
    assert ended.returncode == 0, ended
    assert {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()} == set(names)
    for name in names:
        (dist / name).rename(dist / "away")
        refused(clone.run("gather", VERSION, dist), name)
        (dist / "away").rename(dist / name)


def the_notes_are_the_versions_own(clone):
    ended = clone.run("notes", VERSION, "https://example.com/tree")
    assert ended.returncode == 0 and "### Added" in ended.stdout and "## " + VERSION not in ended.stdout.split("\n"), ended
    links = re.findall(r"\]\(([^)]*)\)", ended.stdout)
    assert links and all(link.startswith("https://") for link in links), links
    assert any(link.startswith("https://example.com/tree/docs/") for link in links), links
    refused(clone.run("notes", "9.9.9", ADDRESS), "no section")


def each_bill_of_materials_has_a_number_of_its_own(clone, dist):
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.3", "components": []}
    bills = [dist / name for name in ("one.cdx.json", "two.cdx.json")]

    def numbers(commit):
        for path in bills:
            path.write_text(json.dumps(bill))
        ended = clone.run("serial", commit, *bills)
        assert ended.returncode == 0, ended
        return [json.loads(path.read_text())["serialNumber"] for path in bills]

    made = numbers("a" * 40)
    # As CycloneDX asks for it.
    assert all(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", number) for number in made), made
    assert made == numbers("a" * 40) and len({*made, *numbers("b" * 40)}) == 4, made
    bills[0].write_text("{}")
    refused(clone.run("serial", "a" * 40, *bills), "no bomFormat")
    for path in bills:
        path.unlink()


def the_tagged_commit_knows_the_programs(clone, dist):
    source = clone.git("rev-parse", "HEAD")
    sums = dist / "SHA256SUMS"
    refused(clone.run("tag", VERSION, sums, "http://example.com"), "no https")
    # One before the release moves nothing that others follow.
    assert clone.run("tag", f"{VERSION}-rc.1", sums, ADDRESS).returncode == 0
    assert clone.git("tag", "--points-at", "HEAD") == [f"v{VERSION}-rc.1"]
    clone.git("reset", "--quiet", "--hard", *source)
    ended = clone.run("tag", VERSION, sums, ADDRESS)
    assert ended.returncode == 0, ended
    major, minor, _ = VERSION.split(".")
    assert set(clone.git("tag", "--points-at", "HEAD")) == {f"v{VERSION}", f"v{major}.{minor}", f"v{major}"}
    assert clone.git("rev-parse", "HEAD~1") == source
    assert clone.git("diff", "--name-only", "HEAD~1") == ["config/actions/programs"]
    listed = (clone.at / "config/actions/programs").read_text().splitlines()
    lines = [line for line in listed if not line.startswith("#")]
    wanted = [line for line in sums.read_text().splitlines() if re.search(r"  runyard-linux-\w+$", line)]
    assert lines == [line.replace("  ", f"  {ADDRESS}/") for line in wanted] and len(lines) == 2, lines
    refused(clone.run("check", VERSION), "exists already")
    # A patch of an older minor version leaves `v0` where it is, and one that is no newest patch moves nothing.
    moving = {f"v{major}.{minor}", f"v{major}"}
    for newer, moves in ((f"{major}.{int(minor) + 1}.0", {f"v{major}.{minor}"}), (f"{major}.{minor}.99", set())):
        clone.git("tag", "--delete", f"v{VERSION}", *moving)
        clone.git("tag", f"v{newer}", *source)
        clone.git("reset", "--quiet", "--hard", *source)
        for name in moving:
            clone.git("tag", name, *source)
        assert clone.run("tag", VERSION, sums, ADDRESS).returncode == 0
        assert set(clone.git("tag", "--points-at", "HEAD")) == {f"v{VERSION}", *moves}, (newer, clone.git("tag", "--points-at", "HEAD"))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        clone = Clone(pathlib.Path(scratch) / "clone")
        dist = pathlib.Path(scratch) / "dist"
        dist.mkdir()
        every_place_of_the_version_is_checked(clone)
        a_release_is_made_only_where_the_owner_is_named(clone)
        a_release_lacks_no_file(clone, dist)
        the_notes_are_the_versions_own(clone)
        each_bill_of_materials_has_a_number_of_its_own(clone, dist)
        the_tagged_commit_knows_the_programs(clone, dist)
    print("the release's scripts stop at what is wrong, and tag what they should")


if __name__ == "__main__":
    sys.exit(main())
