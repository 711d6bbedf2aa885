# SPDX-License-Identifier: Apache-2.0
"""Runs unittest modules and writes {test: outcome}: pytest does not find numba-cuda's, which are redirected when imported.

usage: run_numba_tests.py REPORT MODULE…
"""

import json
import sys
import unittest

import numba.cuda.testing  # noqa: F401: redirects the modules


class Outcomes(unittest.TextTestResult):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.outcomes = {}

    def addSuccess(self, test):
        self.outcomes[test.id()] = "passed"

    def addSkip(self, test, reason):
        self.outcomes[test.id()] = "skipped"

    def _add_bad(self, test, _):
        self.outcomes[test.id()] = "failed"

    addFailure = addError = addExpectedFailure = addUnexpectedSuccess = _add_bad


suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])
result = unittest.TextTestRunner(resultclass=Outcomes).run(suite)
with open(sys.argv[1], "w", encoding="utf-8") as report:
    json.dump(result.outcomes, report)
