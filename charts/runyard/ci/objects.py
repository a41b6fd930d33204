"""Does what the chart renders hold together? Splits it into what Kubernetes' schemas know and what they do not, and
checks what no schema says: Pod Security `restricted`, selectors that find the pods, hooks that come in order.

    objects.py RENDERED KNOWN RULES
    objects.py --shown RENDERED          is the operator's file config/default.toml?
"""

import json
import sys
import tomllib
from pathlib import Path

import yaml

FOREIGN = "monitoring.coreos.com/v1"


def pods(objects: list[dict]) -> list[tuple[str, dict, dict]]:
    """Every pod that would come to be: who makes it, its labels, its spec."""
    found = []
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Pod":
            found.append((name, each["metadata"]["labels"], each["spec"]))
        elif "template" in each.get("spec", {}):
            template = each["spec"]["template"]
            found.append((name, template["metadata"]["labels"], template["spec"]))
    return found


def restricted(name: str, spec: dict) -> list[str]:
    """What keeps a pod from being admitted under `restricted`, and what this chart promises beyond it."""
    wrong = [f"{name}: {key}" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    pod = spec["securityContext"]
    if not pod["runAsNonRoot"] or pod["runAsUser"] < 10000 or pod["seccompProfile"] != {"type": "RuntimeDefault"}:
        wrong.append(f"{name}: securityContext {pod}")
    if spec["automountServiceAccountToken"] is not False:
        wrong.append(f"{name}: mounts a Kubernetes token")
    kinds = {"configMap", "secret", "emptyDir", "projected"}
    wrong += [f"{name}: volume {volume}" for volume in spec.get("volumes", []) if not kinds & volume.keys()]
    # What people add is theirs.
    for container in (each for each in spec["containers"] if each["name"] in ("operator", "runyard")):
        security = container["securityContext"]
        if (
            security["allowPrivilegeEscalation"]
            or not security["readOnlyRootFilesystem"]
            or security["capabilities"] != {"drop": ["ALL"]}
        ):
            wrong.append(f"{name}: container securityContext {security}")
        memory = container["resources"]
        if memory["limits"]["memory"] != memory["requests"]["memory"]:
            wrong.append(f"{name}: memory limit and request differ")
        names = [entry["name"] for entry in container.get("env", [])]
        wrong += [f"{name}: env {twice} stands there twice" for twice in {n for n in names if names.count(n) > 1}]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        if mounted != {volume["name"] for volume in spec.get("volumes", [])}:
            wrong.append(f"{name}: volumes and mounts differ")
    return wrong


def selects(objects: list[dict]) -> list[str]:
    """Selectors that find no pod of the operator, or another one as well."""
    wrong = []
    for each in objects:
        spec = each.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if each["kind"] in ("Job", "Pod") or not selector:
            continue
        wanted = selector.get("matchLabels", selector).items()
        if each["kind"] == "ServiceMonitor":
            labels = {o["metadata"]["name"]: o["metadata"]["labels"] for o in objects if o["kind"] == "Service"}
        else:
            labels = {name: labels for name, labels, _ in pods(objects)}
        chosen = [name for name, have in labels.items() if wanted <= have.items()]
        if len(chosen) != 1 or "test" in chosen[0]:
            wrong.append(f"{each['kind']}/{each['metadata']['name']} selects {chosen}")
    return wrong


def open_doors(objects: list[dict]) -> list[str]:
    """A NetworkPolicy that lets everybody in, an Ingress to more than the page."""
    wrong = []
    for each in objects:
        if each["kind"] == "NetworkPolicy":
            wrong += [f"NetworkPolicy lets everybody in: {rule}" for rule in each["spec"]["ingress"] if not rule.get("from") or {} in rule["from"]]
        if each["kind"] == "Ingress":
            paths = [(path["path"], path["pathType"]) for rule in each["spec"]["rules"] for path in rule["http"]["paths"]]
            if paths != [("/", "Exact"), ("/status.json", "Exact"), ("/icon.svg", "Exact")]:
                wrong.append(f"Ingress leads to {paths}")
    return wrong


def shown(rendered: str) -> int:
    """Whether the operator's file, of values.yaml with all that it shows, is config/default.toml."""
    objects = [each for each in yaml.safe_load_all(Path(rendered).read_text()) if each]
    texts = [each["data"]["runyard.toml"] for each in objects if each["kind"] == "ConfigMap" and "runyard.toml" in each["data"]]
    have = tomllib.loads(texts[0])
    wanted = tomllib.loads((Path(__file__).resolve().parents[3] / "config/default.toml").read_text())
    # The chart's own: the credential's place, and logs that a cluster reads.
    wanted["github"]["token_file"] = "/etc/runyard/github/token"
    wanted["log"]["format"] = "json"
    # The chart writes a table of texts as JSON, which the operator reads as well.
    have["agent"]["environment"] = json.loads(have["agent"]["environment"])
    for table in ("teams", "priorities", "quotas"):
        have["sharing"][table] = json.loads(have["sharing"][table])
    for section in wanted:
        if have.get(section) != wanted[section]:
            print(f"objects: values.yaml shows {section} as {have.get(section)}, it is {wanted[section]}", file=sys.stderr)
    return 0 if have == wanted else 1


def weights(objects: list[dict]) -> list[str]:
    """A Job that comes before what it needs."""
    hook = {
        f"{o['kind']}/{o['metadata']['name']}": int(o["metadata"]["annotations"].get("helm.sh/hook-weight", 0))
        for o in objects
        if "helm.sh/hook" in o["metadata"].get("annotations", {})
    }
    jobs = {name: weight for name, weight in hook.items() if name.startswith("Job/")}
    needs = {name: weight for name, weight in hook.items() if not name.startswith(("Job/", "Pod/"))}
    wrong = [f"{need} comes after {job}" for job in jobs for need in needs if needs[need] >= jobs[job]]
    inits = [jobs[name] for name in jobs if name.endswith("-init")]
    applies = [jobs[name] for name in jobs if name.endswith("-apply")]
    if inits and applies and inits[0] >= applies[0]:
        wrong.append("apply comes before init")
    return wrong


def main(rendered: str, known: str, rules: str) -> int:
    """Splits and checks."""
    objects = [each for each in yaml.safe_load_all(Path(rendered).read_text()) if each]
    ours = [each for each in objects if each["apiVersion"] == FOREIGN]
    Path(known).write_text(yaml.safe_dump_all(each for each in objects if each["apiVersion"] != FOREIGN))
    groups = [group for each in ours if each["kind"] == "PrometheusRule" for group in each["spec"]["groups"]]
    Path(rules).write_text(yaml.safe_dump({"groups": groups}) if groups else "")

    wrong = [problem for name, _, spec in pods(objects) for problem in restricted(name, spec)]
    wrong += selects(objects) + weights(objects) + open_doors(objects)
    for each in objects:
        if each["kind"] == "ConfigMap":
            for name, text in each["data"].items():
                {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}[name.rsplit(".")[-1]](text)
        if each["metadata"]["namespace"] != "runyard":
            wrong.append(f"{each['kind']}/{each['metadata']['name']} is in another namespace")
    for problem in wrong:
        print(f"objects: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(shown(sys.argv[2]) if sys.argv[1] == "--shown" else main(*sys.argv[1:]))
