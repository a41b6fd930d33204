"""Does the reading of documents see what it should?"""

import tempfile
import unittest
from pathlib import Path

import commands

KNOWN = {"": {"--table"}, "get": {"--class"}, "config set": {"--region"}, "config": set()}


class Reading(unittest.TestCase):
    def read(self, text):
        before = commands.ROOT
        with tempfile.TemporaryDirectory() as scratch:
            commands.ROOT = Path(scratch)
            (commands.ROOT / "page.md").write_text(text)
            try:
                return commands.blocks("page.md")
            finally:
                commands.ROOT = before

    def run_of(self, text):
        blocks, wrong = self.read(text)
        self.assertEqual(wrong, [])
        return [one.text for block in blocks for one in block.commands if not block.why_not(one)]

    def test_a_block_without_a_mark_is_run(self):
        self.assertEqual(self.run_of("```sh\n# why\none\ntwo \\\n  more\n```\n"), ["one", "two \\\n  more"])

    def test_what_a_console_shows_is_no_command(self):
        blocks, _ = self.read("```console\n$ one\nshown\n\n$ two\n```\n")
        self.assertEqual([(c.text, c.shown) for c in blocks[0].commands], [("one", ["shown"]), ("two", [])])

    def test_a_mark_is_about_its_block_alone(self):
        self.assertEqual(self.run_of("<!-- not run: far -->\n```sh\none\n```\n\n```sh\ntwo\n```\n"), ["two"])

    def test_a_mark_may_name_calls(self):
        text = "<!-- not run (far, near go): far -->\n```sh\nA=1 far x\nnear go\nnear\nfarther\n```\n"
        self.assertEqual(self.run_of(text), ["near", "farther"])

    def test_a_mark_of_the_page_is_about_all_its_blocks(self):
        text = "<!-- not run on this page (far): far -->\n```sh\nfar\none\n```\n```sh\nfar\n```\n"
        self.assertEqual(self.run_of(text), ["one"])

    def test_a_mark_needs_a_reason_a_block_and_calls_that_there_are(self):
        for text in (
            "<!-- not run: -->\n```sh\none\n```\n",
            "<!-- not run: far -->\n\n```sh\none\n```\n",
            "<!-- not run: far -->\n```text\none\n```\n",
            "<!-- not run (two): far -->\n```sh\none\n```\n",
            "<!-- not run on this page (two): far -->\n```sh\none\n```\n",
            "<!-- not run on this page: far -->\n```sh\none\n```\n",
            "<!-- not run, far -->\n```sh\none\n```\n",
        ):
            self.assertEqual(len(self.read(text)[1]), 1, text)

    def test_calls_are_found_wherever_they_are(self):
        for text in (
            "runyard get pools",
            "A=1 build && ./bin/runyard get pools",
            "all | runyard get pools >file   # runyard not",
            'far exec pod -- runyard get pools',
            'echo "$(runyard get pools)"',
        ):
            self.assertEqual([call[:2] for call in commands.calls(text)], [["get", "pools"]], text)

    def test_verbs_and_options_are_the_programs(self):
        for words, why in (
            ("get pools --class small", ""),
            ("config set x --region=y", ""),
            ("--table x get pools", ""),
            ("--table x got pools", "no verb got"),
            ("got pools", "no verb got"),
            ("get pools --klass small", "`runyard get` has no option --klass"),
            ("config --region", "`runyard config` has no option --region"),
            ("--klass", "no option --klass"),
        ):
            self.assertEqual(commands.unknown(words.split(), KNOWN), why, words)


if __name__ == "__main__":
    unittest.main()
