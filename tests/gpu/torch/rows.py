# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a class and writes one row a test, as scripts/test-gpu collects them."""

from __future__ import annotations

import json
import sys
import time
import unittest
from pathlib import Path


class Rows(unittest.TextTestResult):
    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.rows: list[dict] = []

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._started = time.monotonic()
        self._problems = len(self.failures) + len(self.errors)
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        problems = [text for _, text in self.failures + self.errors]
        failed = len(problems) > self._problems
        skipped = [reason for one, reason in self.skipped if one is test]
        self.rows.append(
            {
                "program": Path(sys.argv[0]).stem.removesuffix("_test"),
                "name": test.id().split(".")[-1].removeprefix("test_").replace("_", " "),
                "outcome": "failed" if failed else "skipped" if skipped else "passed",
                "seconds": round(time.monotonic() - self._started, 3),
                **({"message": (problems + skipped)[-1]} if failed or skipped else {}),
            }
        )
        super().stopTest(test)


def run(case: type[unittest.TestCase]) -> int:
    """RESULTS.json, when it is named, gets the rows. 0, or 1 where a test failed."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    result = unittest.TextTestRunner(resultclass=Rows, verbosity=2).run(suite)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(result.rows), encoding="utf-8")
    return 0 if result.wasSuccessful() else 1
