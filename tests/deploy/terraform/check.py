"""Does the Terraform example fit the module? It names each variable that must be set, and none that is not there. What the
module makes is evaluated by tests/deploy/policies."""

import pathlib
import re
import sys

import hcl2

ROOT = pathlib.Path(__file__).resolve().parents[3]


def read(path):
    return hcl2.loads(path.read_text())


def bare(name):
    return name.strip('"')


def main():
    variables = {}
    for path in sorted((ROOT / "config/terraform").glob("*.tf")):
        for one in read(path).get("variable", []):
            variables |= {bare(name): body for name, body in one.items()}
    required = {name for name, body in variables.items() if "default" not in body}
    assert required and len(variables) > len(required), variables.keys()
    example = read(ROOT / "examples/terraform/main.tf")
    ((name, module),) = example["module"][0].items()
    declared = {bare(name) for one in example["variable"] for name in one}
    named = set(re.findall(r"\bvar\.(\w+)", (ROOT / "examples/terraform/main.tf").read_text()))
    assert declared == named, f"declared and not used, or the other way round: {declared ^ named}"
    given = {key for key in module if not key.startswith("__")} - {"source"}
    assert given <= variables.keys(), f"the module has no {sorted(given - variables.keys())}"
    assert required <= given, f"the module must have {sorted(required - given)}"
    assert bare(module["source"]).endswith("//config/terraform?ref=COMMIT"), module["source"]
    outputs = {bare(name) for path in (ROOT / "config/terraform").glob("*.tf") for one in read(path).get("output", []) for name in one}
    for output, body in (pair for one in example["output"] for pair in one.items()):
        assert bare(output) in outputs and f"module.{bare(name)}.{bare(output)}" in body["value"], body
    print("the Terraform example fits the module")


if __name__ == "__main__":
    sys.exit(main())
