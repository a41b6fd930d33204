"""Does the page say of each tool what the list of tools says, and is the Packer template whole? Its variables are declared and used, its files exist, both architectures are built from
the base that was chosen, and what it builds and how agree with what the operator requires of machines. Packer itself is
not asked: its plugin comes from where a build machine may not reach."""

import json
import pathlib
import re
import sys

import hcl2

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "config" / "packer"
TEXT = (FOLDER / "machine.pkr.hcl").read_text(encoding="utf-8")


def plain(value):
    """Without the quotes that newer versions of the parser keep around labels and text."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items() if key != "__is_block__"}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value


def listed():
    """The needs of commands and actions, by name."""
    lines = [line.split() for line in (FOLDER / "tools").read_text(encoding="utf-8").splitlines()]
    return {words[0]: words[1] for words in lines if words and not words[0].startswith("#")}


def told():
    """The page's table: where each name of its first column comes from."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {name: where for names, where in rows for name in re.findall(r"`([^`]+)`", names)}


WHERE = {"image": "on the image", "job": "installed by the action itself", "variable": "installed by the action itself"}


def main():
    needs, page = listed(), told()
    assert len(page) >= 20, page
    wrong = {name: where for name, where in page.items() if name in needs and where != WHERE.get(needs[name], "not there")}
    wrong |= {name: where for name, where in page.items() if name not in needs and where == "not there"}
    assert not wrong, f"the list of tools says otherwise: {wrong}"
    template = plain(hcl2.loads(TEXT))
    variables = {name for block in template["variable"] for name in block}
    used = set(re.findall(r"\bvar\.(\w+)", TEXT))
    assert used == variables, f"declared and not used, or the other way round: {used ^ variables}"
    documented = {name for block in template["variable"] for name, one in block.items() if one.get("description")}
    assert documented == variables, f"no description: {variables - documented}"
    (values,) = template["locals"]
    names = set(re.findall(r"\blocal\.(\w+)", TEXT))
    assert names == set(values), f"locals: {names ^ set(values)}"

    (build,) = template["build"]
    built = [one["amazon-ebs.machine"] for one in build["source"]]
    assert {one["name"] for one in built} == {"x86_64", "aarch64"}, built
    for name, base in values["bases"].items():
        assert set(base["names"]) == {"x86_64", "aarch64"}, name
    for one in built:
        (chosen,) = one["source_ami_filter"]
        assert one["name"] in json.dumps(chosen["filters"]), f"{one['name']} is built from another architecture"
        assert one["name"] in one["ami_name"]
        assert one["instance_type"].startswith({"x86_64": "m7i.", "aarch64": "m7g."}[one["name"]])

    (source,) = [block["amazon-ebs"]["machine"] for block in template["source"]]
    (metadata,) = source["metadata_options"]
    assert metadata["http_tokens"] == "required" and source["imds_support"] == "v2.0"
    assert source["encrypt_boot"] is True

    provisioners = {kind: one for block in build["provisioner"] for kind, one in block.items()}
    script = provisioners["shell"]["script"].replace("${path.root}", str(FOLDER))
    recipe = pathlib.Path(script).read_text(encoding="utf-8")
    given = {line.partition("=")[0] for line in provisioners["shell"]["environment_vars"]}
    read = set(re.findall(r"\$\{([A-Z]+):-", recipe))
    assert given == read, f"the recipe reads {read}, and is given {given}"
    assert f"AGENT={provisioners['file']['destination']}" in provisioners["shell"]["environment_vars"]
    print("the Packer template is whole, and its page says what the list of tools says")


if __name__ == "__main__":
    sys.exit(main())
