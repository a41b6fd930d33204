"""The table (contract 1): records by strongly consistent reads and conditional writes, each one signed HTTP request."""

import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

ABSENT, PRESENT = object(), object()
"""What a write may expect of an attribute, instead of a value. `{"pk": ABSENT}` expects that there is no record."""

SCHEMA = 1
"""The contract's number. A record with a higher one is left alone (1.2, rule 3)."""

AGAIN = ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
ATTEMPTS = 5
WITHIN = 10.0
"""Seconds that one attempt may take."""


class Refused(Exception):
    """The table does not show any more what the write expected: somebody else wrote first."""


class Newer(Exception):
    """A record of a later schema: it is for newer programs."""


class TableError(Exception):
    """The table did not answer, or refused for another reason than a condition."""


def now() -> str:
    """A time as the contract writes it: RFC 3339 in UTC with `Z`, at most milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wire(value) -> dict:
    """A value in DynamoDB's JSON."""
    match value:
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [wire(one) for one in value]}
        case dict():
            return {"M": {name: wire(one) for name, one in value.items()}}
    raise TypeError(f"{value!r} has no form in the contract")


def plain(value: dict):
    """A value out of DynamoDB's JSON."""
    ((kind, inner),) = value.items()
    match kind:
        case "N":
            return int(inner) if inner.lstrip("-").isdigit() else float(inner)
        case "L":
            return [plain(one) for one in inner]
        case "M":
            return {name: plain(one) for name, one in inner.items()}
        case "NULL":
            return None  # Not "none" (1.2, rule 4): a reader that needs the attribute cannot read the record.
    return inner


class Table:
    """One table, found by AWS's standard variables and RUNYARD_TABLE (contract 6)."""

    def __init__(self, environment=os.environ, name: str = ""):
        self.name = name or environment.get("RUNYARD_TABLE") or "runyard"
        self.region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        own = environment.get("AWS_ENDPOINT_URL_DYNAMODB") or environment.get("AWS_ENDPOINT_URL")
        self.endpoint = own or f"https://dynamodb.{self.region}.amazonaws.com"
        self.key = environment.get("AWS_ACCESS_KEY_ID", "")
        self.secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        self.token = environment.get("AWS_SESSION_TOKEN", "")

    def get(self, pk: str, sk: str) -> dict | None:
        """A record, by a strongly consistent read."""
        found = self.call("GetItem", {"Key": {"pk": wire(pk), "sk": wire(sk)}, "ConsistentRead": True}).get("Item")
        record = found and {name: plain(value) for name, value in found.items()}
        if record and record.get("schema", SCHEMA) > SCHEMA:
            raise Newer(f"{pk} {sk} has schema {record['schema']}, and this program knows {SCHEMA}: use a newer one")
        return record

    def update(self, pk: str, sk: str, expects: dict, sets: dict, adds: dict = {}, removes: tuple = ()) -> None:
        """Writes these attributes and no others, if the record is as expected (1.2, rules 1 and 2).

        A repeated request may find that its first attempt was carried out: then it is `Refused`, and the caller reads
        what there is."""
        names, values = {}, {}

        def name(attribute: str) -> str:
            # By a placeholder: many names of the contract are words of DynamoDB's own.
            return names.setdefault(attribute, f"#n{len(names)}")

        def given(value) -> str:
            values[f":v{len(values)}"] = wire(value)
            return f":v{len(values) - 1}"

        def expected(attribute: str, value) -> str:
            if value is ABSENT or value is PRESENT:
                return f"attribute_{'not_' if value is ABSENT else ''}exists({name(attribute)})"
            return f"{name(attribute)} = {given(value)}"

        parts = ["SET " + ", ".join(f"{name(one)} = {given(value)}" for one, value in sets.items())]
        parts += ["ADD " + ", ".join(f"{name(one)} {given(value)}" for one, value in adds.items())] if adds else []
        parts += ["REMOVE " + ", ".join(name(one) for one in removes)] if removes else []
        condition = " AND ".join(expected(one, value) for one, value in expects.items())
        self.call("UpdateItem", {
            "Key": {"pk": wire(pk), "sk": wire(sk)},
            "UpdateExpression": " ".join(parts),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {placeholder: one for one, placeholder in names.items()},
            "ExpressionAttributeValues": values,
        })

    def call(self, operation: str, body: dict) -> dict:
        """One operation of DynamoDB, again where the table is busy or did not answer."""
        payload = json.dumps({"TableName": self.name} | body).encode()
        for attempt in range(ATTEMPTS):
            time.sleep(0.05 * 2**attempt if attempt else 0)
            headers = self.signed(operation, payload, datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ"))
            asked = urllib.request.Request(self.endpoint, payload, headers)
            try:
                with urllib.request.urlopen(asked, timeout=WITHIN) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                kind = json.loads(said).get("__type", "").rpartition("#")[2] if said.startswith("{") else ""
                if kind == "ConditionalCheckFailedException":
                    raise Refused(operation) from None
                why = TableError(f"{operation} on {self.name}: {error.code} {said}")
                if error.code < 500 and kind not in AGAIN:
                    raise why from None
            except OSError as error:
                why = TableError(f"{operation} on {self.name} at {self.endpoint}: {error}")
        raise why

    def signed(self, operation: str, payload: bytes, at: str) -> dict[str, str]:
        """The headers of a request, with AWS's signature (version 4)."""
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "host": self.endpoint.split("://")[1].rstrip("/"),
            "x-amz-date": at,
            "x-amz-target": f"DynamoDB_20120810.{operation}",
        } | ({"x-amz-security-token": self.token} if self.token else {})
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(payload).hexdigest()}"
        scope = f"{at[:8]}/{self.region}/dynamodb/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = b"AWS4" + self.secret.encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        credential = f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}"
        return headers | {"authorization": f"{credential}, SignedHeaders={names}, Signature={key.hex()}"}
