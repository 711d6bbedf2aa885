# SPDX-License-Identifier: Apache-2.0
"""Every document says what is so: its commands run and print what it shows, what it names exists.

A document is a Markdown file of the checkout. blocks.py says how a block is marked that cannot be run.
"""

import os
import re
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blocks import Document
from checker import Checker
from names import output_of
from prose import check_prose
from recipes import mistakes

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
FOLDERS = ("src", "cache", "examples", "include", "kernels_src", "scripts", "tests")
HISTORIES = ("CHANGELOG.md",)


def documents():
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *found])


class Documents(unittest.TestCase):
    def test_every_document_says_what_is_so(self):
        checker = Checker(ROOT, BINARIES)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            checks = [(path, pool.submit(checker.check, path, path.name in HISTORIES)) for path in documents()]
            for path, check in checks:
                with self.subTest(path.relative_to(ROOT).as_posix()):
                    findings = check.result()
                    self.assertFalse(findings, "\n" + "\n".join(str(f).removeprefix(f"{ROOT}/") for f in findings))

    def test_cells_are_phrases_and_sentences_are_short(self):
        for path in documents():
            with self.subTest(path.relative_to(ROOT).as_posix()):
                findings = [str(f).removeprefix(f"{ROOT}/") for f in check_prose(Document(path, path.read_text()))]
                self.assertFalse(findings, "\n" + "\n".join(findings))

    def test_the_recipes_share_their_names(self):  # fault 456
        self.assertEqual(list(mistakes()), [])

    def test_the_examples_of_help_name_what_there_is(self):
        names = Checker(ROOT, BINARIES).names
        for command in names.commands - {"help"}:
            examples = output_of(names.cukiln, command, "--help").split("Examples:\n")[1]
            for line in examples.splitlines():
                if not line.startswith("   "):
                    self.assertEqual(names.check_text(line, ROOT / "help"), [], f"cukiln help {command}")

    def test_the_command_lines_page_has_a_row_for_each_command_and_setting(self):
        names = Checker(ROOT, BINARIES).names
        rows = re.findall(r"(?m)^\| (`.*?) \|", (ROOT / "src/cli/README.md").read_text())
        named = {name for row in rows for name in re.findall(r"`([\w]+)`", row)}
        self.assertEqual(names.commands - {"help"} - named, set())
        self.assertEqual(names.settings - named, set())

    def test_no_committed_document_is_left_out(self):
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode != 0:
            self.skipTest("not a git checkout")
        tested = {path.relative_to(ROOT).as_posix() for path in documents()}
        self.assertEqual(set(listed.stdout.split()) - tested, set())


if __name__ == "__main__":
    unittest.main()
