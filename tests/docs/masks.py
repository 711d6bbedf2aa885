# SPDX-License-Identifier: Apache-2.0
"""Makes what a command printed comparable with what a document says that it prints."""

import re

ELIDED = "…"

KEY = re.compile(r"\b[0-9a-f]{12,64}\b")
# In this order. The width of a column depends on what is masked, so runs of spaces become one.
MASKS = (
    (re.compile(r"\b[\w.-]+:[A-Za-z0-9+/]{43}="), "PUBLIC_KEY"),
    (KEY, "KEY"),
    (re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/"), "FOLDER/"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?(?: UTC|Z)?\b"), "DATE"),
    (re.compile(r"\b\d+(?:\.\d+){2,}\b"), "VERSION"),
    (re.compile(r"\b(?:\d+ min \d+ s|\d+ h \d+ min|[\d,.]+ ?(?:ns|µs|us|ms|s|min|h|d))\b"), "TIME"),
    (re.compile(r"\bnow\b|\bTIME ago\b"), "AGO"),
    (re.compile(r"\b[\d,.]+ ?(?:B|[KMGT]iB|[KMGT]B|bytes)(?![\w])"), "SIZE"),
    (re.compile(r"\b\d+ reg(?:ister)?s\b"), "N regs"),
    (re.compile(r"\s+"), " "),
)


def mask(line):
    for pattern, by in MASKS:
        line = pattern.sub(by, line)
    return line.strip()


def lines_of(text):
    return [line for line in text.splitlines() if line.strip()]


def matches(expected, actual):
    """Whether a line is what the document says; an ellipsis in it stands for anything."""
    parts = [re.escape(part.strip()) for part in mask(expected).split(ELIDED)]
    return re.fullmatch(r"\s*.*\s*".join(parts), mask(actual)) is not None


class Comparison:
    """Compares line by line; a line that is an ellipsis stands for any number of lines."""

    def __init__(self, expected, actual):
        self.expected, self.actual = expected, actual
        self.pairs = []  # of a line of the document and the line that it stands for
        self.first_missing = None  # index of the document's first line that was not printed
        self.surplus = None  # the first line that was printed and is not in the document
        at, elided = 0, False
        for index, line in enumerate(expected):
            if line.strip() == ELIDED:
                elided = True
                continue
            end = len(actual) if elided else min(at + 1, len(actual))
            found = next((i for i in range(at, end) if matches(line, actual[i])), None)
            if found is None:
                self.first_missing = index
                return
            self.pairs.append((line, actual[found]))
            at, elided = found + 1, False
        if at < len(actual) and not elided:
            self.surplus = actual[at]

    def keys(self):
        """The document's keys, and those of this run that they stand for."""
        found = {}
        for expected, actual in self.pairs:
            found.update(zip(KEY.findall(expected), KEY.findall(actual), strict=False))
        return found
