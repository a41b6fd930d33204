"""The table as the contract describes it: keys, readers, and the writes a workflow, an agent or a person may do."""

import threading
import uuid
from datetime import datetime, timezone
from decimal import Decimal

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.exceptions import ClientError

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


ONE_AT_A_TIME = threading.Lock()
"""boto3 makes clients safely for one thread at a time only; using them is safe for many."""


def client(service: str, endpoint: str):
    with ONE_AT_A_TIME:
        return made(service, endpoint)


def made(service: str, endpoint: str):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=CREDENTIALS["AWS_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=5, read_timeout=30),
    )


def time_of(text: str) -> datetime:
    """RFC 3339 UTC with `Z`, at most milliseconds."""
    if not text.endswith("Z") or len(text) > len("2026-01-01T00:00:00.000Z"):
        raise ValueError(f"{text!r} is not RFC 3339 UTC with Z and at most milliseconds")
    return datetime.fromisoformat(text)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value):
    """Decimals as ints where they are whole, so that comparisons read well."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def decoded(image: dict) -> dict:
    """A wire image as plain values."""
    read = TypeDeserializer().deserialize
    return plain({name: read(value) for name, value in image.items()})


def encoded(values: dict) -> dict:
    write = TypeSerializer().serialize
    return {name: write(value) for name, value in values.items()}


def request_key(repository: str, run_id: str, name: str = "default", attempt: int = 1) -> dict:
    return {"pk": f"request#{repository.lower()}#{run_id}", "sk": f"request#{name}#{attempt}"}


def pool_key(resource_class: str) -> dict:
    return {"pk": f"pool#{resource_class}", "sk": "pool"}


def instance_key(arn: str) -> dict:
    return {"pk": f"instance#{arn}", "sk": "instance"}


def agent_key(arn: str) -> dict:
    return {"pk": f"agent#{arn}", "sk": "agent"}


def log_key(arn: str) -> dict:
    return {"pk": f"agent#{arn}", "sk": "log"}


class Refused(Exception):
    """A condition did not hold."""


class Table:
    """One table, by DynamoDB calls alone."""

    def __init__(self, dynamodb, name: str):
        self.dynamodb, self.name = dynamodb, name

    def get(self, key: dict) -> dict | None:
        reply = self.dynamodb.get_item(TableName=self.name, Key=encoded(key), ConsistentRead=True)
        return decoded(reply["Item"]) if "Item" in reply else None

    def all(self, kind: str) -> list[dict]:
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        items = (decoded(item) for page in pages for item in page["Items"])
        return [item for item in items if item.get("kind") == kind]

    def put(self, item: dict) -> None:
        self.dynamodb.put_item(TableName=self.name, Item=encoded(item), ConditionExpression="attribute_not_exists(pk)")

    def update(
        self,
        key: dict,
        condition: str,
        known: dict | None = None,
        add: dict | None = None,
        remove: tuple[str, ...] = (),
        **values,
    ) -> None:
        """SET, ADD and REMOVE of attributes by their names; `known` fills the condition's `:placeholders`."""
        names, filled, sets, adds = {}, encoded({f":{n}": v for n, v in (known or {}).items()}), [], []
        for number, (name, value) in enumerate({**values, **(add or {})}.items()):
            names[f"#a{number}"] = name
            filled |= encoded({f":a{number}": value})
            (adds if name in (add or {}) else sets).append((f"#a{number}", f":a{number}"))
        names |= {f"#r{number}": name for number, name in enumerate(remove)}
        expression = " ".join(
            clause
            for clause in (
                "SET " + ", ".join(f"{name} = {value}" for name, value in sets) if sets else "",
                "ADD " + ", ".join(f"{name} {value}" for name, value in adds) if adds else "",
                "REMOVE " + ", ".join(f"#r{number}" for number in range(len(remove))) if remove else "",
            )
            if clause
        )
        try:
            self.dynamodb.update_item(
                TableName=self.name,
                Key=encoded(key),
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=filled,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise Refused(condition) from error
            raise

    # What a workflow writes (contract 3).

    def provision(self, repository: str, run_id: str, resource_class: str, count: int, **intent) -> dict:
        """The intent with the least a workflow must say; returns the request's key."""
        key = request_key(repository, run_id, intent.get("name", "default"), intent.get("attempt", 1))
        at = now()
        fields = {
            "kind": "request",
            "version": 1,
            "runId": run_id,
            "attempt": 1,
            "repository": repository,
            "name": "default",
            "resourceClass": resource_class,
            "count": count,
            "desired": "provisioned",
            "generation": 1,
            "uid": uuid.uuid4().hex,
            "createdAt": at,
            "updatedAt": at,
        } | intent
        self.update(key, "attribute_not_exists(pk)", **fields)
        return key

    def release(self, key: dict) -> None:
        """Conditional on `desired` alone, never on the version."""
        self.update(
            key,
            "desired = :provisioned",
            {"provisioned": "provisioned"},
            add={"generation": 1, "version": 1},
            desired="released",
            updatedAt=now(),
        )

    # What a person or another program may write beside them.

    def delete(self, key: dict) -> None:
        """As by the console: whatever is there."""
        self.dynamodb.delete_item(TableName=self.name, Key=encoded(key))

    def amend(self, key: dict, **values) -> None:
        """Adds attributes to whatever version the record has by then, raising it by one if it has any."""
        while True:
            record = self.get(key)
            if "version" not in record:
                return self.update(key, "attribute_exists(pk)", {}, **values)
            try:
                return self.update(
                    key,
                    "version = :version",
                    {"version": record["version"]},
                    add={"version": 1},
                    updatedAt=now(),
                    **values,
                )
            except Refused:
                continue
