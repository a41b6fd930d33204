"""A claim that ends has a signed statement (contract 2.14), which others check with their own tools."""

import base64
import hashlib
import json

import records
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from yard import REPOSITORY, Scenario

ITEMS = (
    "processes directories files othersFiles ipc containers keyrings network controlGroup postRun keptLayers".split()
)
# Of RFC 8410: what stands before the 32 bytes of a key in DER.
PRIVATE, PUBLIC = "302e020100300506032b657004220420", "302a300506032b6570032100"


def pem(label: str, head: str, key: bytes) -> str:
    body = base64.b64encode(bytes.fromhex(head) + key).decode()
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def opened(envelope: dict, key: VerifyKey) -> dict:
    """The statement, once its signature is checked (DSSE version 1)."""
    (signature,) = envelope["signatures"]
    kind, payload = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"], validate=True)
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key.verify(signed, base64.b64decode(signature["sig"], validate=True))
    expected = hashlib.sha256(bytes.fromhex(PUBLIC) + bytes(key)).hexdigest()
    if signature["keyid"] != expected:
        raise ValueError(f"keyid {signature['keyid']}, not {expected}")
    return json.loads(payload)


class Statements(Scenario):
    def prepare(self) -> None:
        self.signing = SigningKey.generate()
        file = self.scratch / "statements.pem"
        file.write_text(pem("PRIVATE KEY", PRIVATE, bytes(self.signing)))
        self.public = self.scratch / "statements.pub.pem"
        self.public.write_text(pem("PUBLIC KEY", PUBLIC, bytes(self.signing.verify_key)))
        self.kept = {"signing_key_file": str(file)}

    def served(self, run_id: str, found: dict | None) -> list[dict]:
        """One cycle of the pooled machine, whose agent found this; the statements about the run's claims."""
        (warm,) = self.pooled(1)
        self.machines.of(warm).found = found
        key = self.ask(run_id)
        self.phase(key, "Ready")
        self.table.release(key)
        self.phase(key, "Released")
        query = {
            "TableName": f"{self.table_name}-history",
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": f"statement#{key['pk']}"}},
        }
        items = self.eventually("a statement", lambda: self.dynamodb.query(**query)["Items"])
        return [records.decoded(item) for item in items]

    def verified(self, item: dict, exits: int) -> str:
        file = self.scratch / "claim.intoto.jsonl"
        file.write_text(item["envelope"] + "\n")
        return self.runyard("verify", str(file), "--key", str(self.public), exits=exits).stdout

    def test_a_statement_is_checked_with_the_tools_of_others(self):
        self.pool(desired=1, max=1)
        (item,) = self.served("9401", dict.fromkeys(ITEMS, "passed"))
        statement = opened(json.loads(item["envelope"]), self.signing.verify_key)
        self.assertEqual(statement["_type"], "https://in-toto.io/Statement/v1")
        self.assertEqual(statement["predicateType"], "urn:runyard:claim:1")
        self.assertEqual([one["name"] for one in statement["subject"]], [f"claim:{item['claimId']}"])
        said = statement["predicate"]
        self.assertTrue(said["clean"], said)
        self.assertEqual((said["failed"], said["claim"]["outcome"]), ([], "pooled"))
        self.assertEqual(said["claim"]["request"]["pk"], f"request#{REPOSITORY.lower()}#9401")
        self.verified(item, exits=0)
        run = ["--run-id", "9401", "--repository", REPOSITORY, "--wait"]
        self.assertEqual(self.runyard("history", "statements", *run).stdout, item["envelope"] + "\n")
        export = self.runyard("history", "export", "--since", "1h").stdout.splitlines()
        digests = {hashlib.sha256(line.encode()).hexdigest() for line in export}
        self.assertIn(statement["subject"][0]["digest"]["sha256"], digests)
        with self.assertRaises(BadSignatureError):
            opened(json.loads(item["envelope"]), SigningKey.generate().verify_key)

    def test_a_claim_with_a_missing_or_failed_item_is_not_said_to_be_clean(self):
        self.pool(desired=1, max=1)
        found = dict.fromkeys(ITEMS, "passed")
        for run_id, told in (
            ("9402", None),
            ("9403", found | {"files": "failed"}),
            ("9404", {name: word for name, word in found.items() if name != "keyrings"}),
            ("9405", found | {"files": "nothing"}),
            ("9406", found | {"files": "surely"}),
        ):
            (item,) = self.served(run_id, told)
            said = opened(json.loads(item["envelope"]), self.signing.verify_key)["predicate"]
            self.assertFalse(said["clean"], (told, said))
            self.assertIn("not proved", self.verified(item, exits=1))
