"""Does each recorded exchange fit GitHub's published description? Statuses, bodies and request bodies are compared; a
status the description does not list for the call is a mistake unless it is one that any call may have."""

import datetime
import json
import sys

import jsonschema

# The description lists these for few calls, yet each call can have them.
ANYWHERE = {401, 404, 409, 422}
BASIC_ERROR = {"type": "object", "required": ["message", "documentation_url"]}

CHECKER = jsonschema.FormatChecker(formats=())


@CHECKER.checks("date-time", raises=ValueError)
def is_date_time(value):
    return not isinstance(value, str) or bool(datetime.datetime.fromisoformat(value.replace("Z", "+00:00")))


def json_schema(schema):
    """OpenAPI 3.0 says `nullable`, JSON Schema says so by a type."""
    if isinstance(schema, list):
        return [json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: json_schema(value) for key, value in schema.items() if key not in ("example", "examples")}
    if converted.pop("nullable", False) is True:
        return {"anyOf": [{"type": "null"}, converted]}
    return converted


def problems(schema, value):
    validator = jsonschema.Draft7Validator(json_schema(schema), format_checker=CHECKER)
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(value)]


def content(described):
    return described.get("content", {}).get("application/json", {}).get("schema")


def check(paths, exchange):
    call = f"{exchange['method']} {exchange['path']} {exchange['status']}"
    operation = paths[exchange["path"]][exchange["method"].lower()]
    found = []
    refused = exchange["status"] >= 400
    if exchange["request"] is not None and not refused:
        found += problems(content(operation["requestBody"]), exchange["request"])
    described = operation["responses"].get(str(exchange["status"]))
    if described is None:
        if exchange["status"] not in ANYWHERE:
            found.append(f"the description does not know this status, only {sorted(operation['responses'])}")
        found += problems(BASIC_ERROR, exchange["body"])
    elif content(described) is None:
        if exchange["body"] is not None and not refused:
            found.append("the description knows no body here")
    else:
        found += problems(content(described), exchange["body"])
    return [f"{call}: {problem}" for problem in found]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        paths = json.load(file)["paths"]
    with open(sys.argv[2], encoding="utf-8") as file:
        exchanges = [json.loads(line) for line in file]
    if len(exchanges) < 20:
        sys.exit(f"only {len(exchanges)} exchanges were recorded")
    found = [problem for exchange in exchanges for problem in check(paths, exchange)]
    print("\n".join(found) or f"{len(exchanges)} exchanges fit the description")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
