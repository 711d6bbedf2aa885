# SPDX-License-Identifier: Apache-2.0
"""Every test exists that SECURITY.md names for a promise, and tests/PEERS.md for a scenario."""

from __future__ import annotations

import re
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TITLE = r'"[^"]*"|`test_\w+`'
CITATION = re.compile(rf"`([\w/]+\.(?:cpp|hpp|py))`(?:: ((?:(?:{TITLE})(?:, )?)+))?")


def titles_of(path: Path) -> str:
    """The file's text; a title that is written as several literals is one again."""
    return re.sub(r'"\s*\n\s*"', "", path.read_text())


def missing(document: str) -> Iterator[str]:
    for row in document.splitlines():
        if not row.startswith("|"):
            continue
        for file, titles in CITATION.findall(row.rstrip(" |").rsplit("|", 1)[-1]):
            path = ROOT / "tests" / file
            if not path.is_file():
                yield f"no file {file}"
                continue
            text = titles_of(path)
            yield from (f"no {title} in {file}" for title in re.findall(TITLE, titles) if title.strip('"`') not in text)


class PromisesTest(unittest.TestCase):
    def test_each_test_that_is_named_exists(self) -> None:
        for page, at_least in (("SECURITY.md", 50), ("tests/PEERS.md", 20)):
            document = (ROOT / page).read_text()
            self.assertGreater(len(CITATION.findall(document)), at_least, page)
            self.assertEqual(list(missing(document)), [], page)

    def test_a_wrong_title_and_a_missing_file_are_noticed(self) -> None:
        rows = '| p | `docs/tables_test.py`: `test_no_such` |\n| p | `docs/no_test.py` |\n'
        self.assertEqual(len(list(missing(rows))), 2)


if __name__ == "__main__":
    unittest.main()
