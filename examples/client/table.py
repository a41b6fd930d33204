"""The table (section 1 of the contract): consistent reads and conditional writes, each a signed HTTP request."""

import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

ABSENT, PRESENT = object(), object()
"""Conditions of a write, in place of a value. `{"pk": ABSENT}` requires that no record exists."""

SCHEMA = 1
"""The schema of this client. A record with a higher one is left alone (1.2, rule 3)."""

RETRIED = ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
ATTEMPTS = 5
TIMEOUT = 10.0
"""The timeout of one attempt, in seconds."""


class ConditionFailed(Exception):
    """The condition of a write did not hold: another writer was first."""


class NewerSchema(Exception):
    """The record has a higher schema and is for newer programs."""


class TableError(Exception):
    """The table did not respond, or rejected a request for another reason than a condition."""


def now() -> str:
    """Returns the time as the contract writes it: RFC 3339 in UTC with `Z`, in milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(value) -> dict:
    """Converts a value to DynamoDB's JSON."""
    match value:
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [encode(one) for one in value]}
        case dict():
            return {"M": {name: encode(one) for name, one in value.items()}}
    raise TypeError(f"{value!r} has no type in the contract")


def decode(value: dict):
    """Converts a value from DynamoDB's JSON."""
    ((kind, inner),) = value.items()
    match kind:
        case "N":
            return int(inner) if inner.lstrip("-").isdigit() else float(inner)
        case "L":
            return [decode(one) for one in inner]
        case "M":
            return {name: decode(one) for name, one in inner.items()}
        case "NULL":
            return None  # A record with NULL in a required attribute is unreadable (1.2, rule 4).
    return inner


class Table:
    """One table, configured by AWS's standard variables and RUNYARD_TABLE (section 6)."""

    def __init__(self, environment=os.environ, name: str = ""):
        self.name = name or environment.get("RUNYARD_TABLE") or "runyard"
        self.region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        own = environment.get("AWS_ENDPOINT_URL_DYNAMODB") or environment.get("AWS_ENDPOINT_URL")
        self.endpoint = own or f"https://dynamodb.{self.region}.amazonaws.com"
        self.key = environment.get("AWS_ACCESS_KEY_ID", "")
        self.secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        self.token = environment.get("AWS_SESSION_TOKEN", "")

    def get(self, pk: str, sk: str) -> dict | None:
        """Reads a record with strong consistency."""
        response = self.call("GetItem", {"Key": {"pk": encode(pk), "sk": encode(sk)}, "ConsistentRead": True})
        record = {name: decode(value) for name, value in response["Item"].items()} if "Item" in response else None
        if record and record.get("schema", SCHEMA) > SCHEMA:
            raise NewerSchema(f"{pk} {sk} has schema {record['schema']}, this client knows {SCHEMA}: use a newer one")
        return record

    def update(self, pk: str, sk: str, expects: dict, sets: dict, adds: dict = {}, removes: tuple = ()) -> None:
        """Writes these attributes and no others, if the condition holds (1.2, rules 1 and 2).

        If the response of a successful attempt is lost, the repeated attempt raises `ConditionFailed`; the caller must
        then read the record."""
        names, values = {}, {}

        def name(attribute: str) -> str:
            # Some names are reserved words of DynamoDB, so every name is a placeholder.
            return names.setdefault(attribute, f"#n{len(names)}")

        def literal(value) -> str:
            values[f":v{len(values)}"] = encode(value)
            return f":v{len(values) - 1}"

        def term(attribute: str, value) -> str:
            if value is ABSENT or value is PRESENT:
                return f"attribute_{'not_' if value is ABSENT else ''}exists({name(attribute)})"
            return f"{name(attribute)} = {literal(value)}"

        parts = ["SET " + ", ".join(f"{name(one)} = {literal(value)}" for one, value in sets.items())]
        parts += ["ADD " + ", ".join(f"{name(one)} {literal(value)}" for one, value in adds.items())] if adds else []
        parts += ["REMOVE " + ", ".join(name(one) for one in removes)] if removes else []
        condition = " AND ".join(term(one, value) for one, value in expects.items())
        self.call("UpdateItem", {
            "Key": {"pk": encode(pk), "sk": encode(sk)},
            "UpdateExpression": " ".join(parts),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {placeholder: one for one, placeholder in names.items()},
            "ExpressionAttributeValues": values,
        })

    def call(self, operation: str, body: dict) -> dict:
        """Calls an operation of DynamoDB, and repeats it if the table is busy or does not respond."""
        payload = json.dumps({"TableName": self.name} | body).encode()
        for attempt in range(ATTEMPTS):
            time.sleep(0.05 * 2**attempt if attempt else 0)
            headers = self.signed(operation, payload, datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ"))
            request = urllib.request.Request(self.endpoint, payload, headers)
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                response = error.read().decode(errors="replace")
                kind = json.loads(response).get("__type", "").rpartition("#")[2] if response.startswith("{") else ""
                if kind == "ConditionalCheckFailedException":
                    raise ConditionFailed(operation) from None
                why = TableError(f"{operation} on {self.name}: {error.code} {response}")
                if error.code < 500 and kind not in RETRIED:
                    raise why from None
            except OSError as error:
                why = TableError(f"{operation} on {self.name} at {self.endpoint}: {error}")
        raise why

    def signed(self, operation: str, payload: bytes, at: str) -> dict[str, str]:
        """Returns the headers of a request, signed with AWS's signature version 4."""
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
