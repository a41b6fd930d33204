"""Writes the workflows that stand in documents, each into a file of its own: in_documents.py DIRECTORY. A block that begins
with its jobs gets what a whole workflow has before them."""

import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def main(directory):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout.split()
    made = 0
    for name in listed:
        for number, block in enumerate(BLOCK.finditer((ROOT / name).read_text())):
            text = textwrap.dedent(block[2])
            if re.search(r"^jobs:", text, re.MULTILINE):
                head = "" if re.search(r"^on:", text, re.MULTILINE) else "on: push\n"
                place = pathlib.Path(directory) / f"{name.replace('/', '_')}-{number}.yml"
                place.write_text(head + text)
                made += 1
    assert made >= 2, f"{made} workflows in documents: README.md and docs/migrate.md have one each"


if __name__ == "__main__":
    main(sys.argv[1])
