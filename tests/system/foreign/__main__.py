"""Runs the scenarios, several beside each other: each has its own table and operator, and mostly waits.

Takes what `python -m unittest` takes.
"""

import os
import sys
import time
import traceback
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

BESIDE_EACH_OTHER = int(os.environ.get("RUNYARD_TEST_JOBS") or 4)


class Runner:
    """A runner in unittest's sense."""

    def run(self, suite: unittest.TestSuite) -> unittest.TestResult:
        total, begun = unittest.TestResult(), time.monotonic()
        with ThreadPoolExecutor(BESIDE_EACH_OTHER) as pool:
            for done in as_completed([pool.submit(judged, test) for test in tests_of(suite)]):
                test, result, seconds = done.result()
                total.testsRun += result.testsRun
                total.failures += result.failures
                total.errors += result.errors
                say(f"{'ok    ' if result.wasSuccessful() else 'FAILED'} {seconds:5.1f} s  {test.id()}")
        for test, report in total.failures + total.errors:
            say(f"\n{'=' * 70}\nFAILED {test.id()}\n{report}")
        broken = len({test.id() for test, _ in total.failures + total.errors})
        say(f"\nforeign client: {total.testsRun} tests, {broken} failed, {time.monotonic() - begun:.0f} s")
        return total


def judged(test: unittest.TestCase) -> tuple[unittest.TestCase, unittest.TestResult, float]:
    result, begun = unittest.TestResult(), time.monotonic()
    try:
        test.run(result)
    except BaseException:  # noqa: BLE001 - one test must not take the others' reports with it
        result.errors.append((test, traceback.format_exc()))
    return test, result, time.monotonic() - begun


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for part in suite:
        yield from tests_of(part) if isinstance(part, unittest.TestSuite) else [part]


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    os.chdir(here)
    sys.path.insert(0, here)
    asked = sys.argv[1:] or ["discover"]
    unittest.main(module=None, argv=["tests/system/foreign/run", *asked], testRunner=Runner())
