"""The client's HTTP: its signature is AWS's, and an answer that is lost is no write that is lost or made twice."""

import json
import threading
import unittest
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import place
import table
import workflow
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

yard: place.Yard


def setUpModule() -> None:
    global yard
    yard = place.Yard()


def tearDownModule() -> None:
    yard.end()


class Signature(unittest.TestCase):
    def test_it_is_the_one_that_aws_computes(self):
        for endpoint, token in (("", ""), ("http://127.0.0.1:8000", ""), ("https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com/", "t/+=")):
            with self.subTest(endpoint):
                ours = table.Table({
                    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret/+=", "AWS_SESSION_TOKEN": token,
                    "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_DYNAMODB": endpoint,
                })
                payload = json.dumps({"TableName": "ü"}).encode()
                theirs = AWSRequest("POST", ours.endpoint, data=payload, headers={
                    "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.GetItem",
                })
                SigV4Auth(Credentials("AKIAEXAMPLE", "secret/+=", token or None), "dynamodb", "eu-west-1").add_auth(theirs)
                signed = ours.signed("GetItem", payload, theirs.headers["X-Amz-Date"])
                self.assertEqual(signed["authorization"], theirs.headers["Authorization"])

    def test_values_keep_their_forms(self):
        for value, form in ((True, {"BOOL": True}), (3, {"N": "3"}), (-1.5, {"N": "-1.5"}), ("", {"S": ""}),
                            (["a", {"b": [False]}], {"L": [{"S": "a"}, {"M": {"b": {"L": [{"BOOL": False}]}}}]})):
            self.assertEqual(table.encode(value), form)
            self.assertEqual(table.decode(form), value)
            self.assertIs(type(table.decode(form)), type(value))
        with self.assertRaises(TypeError):
            table.encode(None)


class Reads(unittest.TestCase):
    def test_each_is_strongly_consistent(self):
        asked = []
        reader = table.Table({}, name="yard")
        reader.call = lambda operation, body: asked.append((operation, body)) or {}
        self.assertIsNone(reader.get("pool#small", "pool"))
        key = {"pk": {"S": "pool#small"}, "sk": {"S": "pool"}}
        self.assertEqual(asked, [("GetItem", {"Key": key, "ConsistentRead": True})])


class Forgetful:
    """Hands calls on to the table, and answers the first write with an error, after it was carried out."""

    def __init__(self, behind: str):
        forgetful = self
        self.writes = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kept = {name: self.headers[name] for name in ("Authorization", "Content-Type", "X-Amz-Date", "X-Amz-Target")}
                try:
                    with urllib.request.urlopen(urllib.request.Request(behind, body, kept)) as answer:
                        status, reply = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, reply = error.code, error.read()
                if kept["X-Amz-Target"].endswith(".UpdateItem"):
                    forgetful.writes += 1
                    if forgetful.writes == 1:
                        status, reply = 500, b"{}"
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class LostAnswers(unittest.TestCase):
    def setUp(self) -> None:
        self.table = yard.scratch_table()
        self.lossy = table.Table(yard.environment, name=self.table.name)

    def lose(self) -> Forgetful:
        """From now on the answer of the next write is lost."""
        forgetful = Forgetful(self.table.endpoint)
        self.addCleanup(forgetful.close)
        self.lossy.endpoint = forgetful.url
        return forgetful

    def test_each_write_of_a_workflow_is_carried_out_once(self):
        forgetful = self.lose()
        asked = workflow.provision(self.lossy, "acme/web", "1", "small", secret_label=True)
        self.assertEqual((forgetful.writes, asked["version"]), (2, 1))
        self.assertEqual(asked, self.table.get(asked["pk"], asked["sk"]))
        forgetful = self.lose()
        raised = workflow.raise_count(self.lossy, asked, 3)
        self.assertEqual((forgetful.writes, raised["count"], raised["version"], raised["generation"]), (2, 3, 2, 2))
        forgetful = self.lose()
        released = workflow.release(self.lossy, asked)
        self.assertEqual((forgetful.writes, released["desired"], released["version"]), (2, "released", 3))

    def test_a_table_that_never_answers_is_told_by_its_address(self):
        forgetful = self.lose()
        forgetful.close()
        with self.assertRaisesRegex(table.TableError, f"GetItem on {self.table.name} at {forgetful.url}"):
            self.lossy.get("request#a/b#1", "request#default#1")

    def test_an_error_that_repeating_does_not_mend_is_told_at_once(self):
        missing = table.Table(yard.environment, name="missing")
        with self.assertRaisesRegex(table.TableError, "GetItem on missing: 400 .*ResourceNotFound"):
            missing.get("request#a/b#1", "request#default#1")


if __name__ == "__main__":
    unittest.main()
