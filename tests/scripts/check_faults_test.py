# SPDX-License-Identifier: Apache-2.0
"""scripts/check-faults finds what differs between table and tests, and nothing where they agree."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-faults"
HEADER = "| id | fault | promise | test |\n|---|---|---|---|\n"
FAULT = "fault"  # so that this file cites nothing: f"{FAULT} 1"
NOT_TESTED = "not tested: no machine here has two disks"


def cite(*ids: str) -> str:
    return "".join(f'TEST_CASE("{FAULT} {fault_id}: it goes on") {{\n}}\n' for fault_id in ids)


def row(fault_id: str, *files: str, fault: str = "no disk", promise: str = "a miss") -> str:
    test = ", ".join(f"`{file}`" for file in files) or NOT_TESTED
    return f"| {fault_id} | {fault} | {promise} | {test} |\n"


class CheckFaultsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.promise()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def promise(self, *items: str) -> None:
        text = "".join(f"- {item}\n" for item in items)
        self.write("SECURITY.md", f"# Security\n\n## Promises\n\n{text}\n## Others\n\n- no promise\n")

    def check(self, *rows: str) -> str:
        self.write("tests/FAULTS.md", "# Faults\n\n" + HEADER + "".join(rows))
        return self.run_script()

    def run_script(self) -> str:
        done = subprocess.run(
            [sys.executable, SCRIPT, "--root", self.root],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
        return done.stdout

    def assert_finds(self, output: str, *words: str) -> None:
        self.assertEqual(output.count("\n"), 1, output)
        for word in words:
            self.assertIn(word, output)

    def test_table_and_tests_that_agree(self) -> None:
        self.write("tests/a_test.cpp", cite("1", "1b") + f"// {FAULT} 12, {FAULT} 13\n")
        self.write("tests/unit/b_test.py", f"def test_it():  # {FAULT} 1\n")
        files = ("tests/a_test.cpp", "tests/unit/b_test.py")
        table = (row("1", *files), row("1b", files[0]), row("12", files[0]), row("13", files[0]))
        self.assertEqual(self.check(*table, row("14")), "")

    def test_texts_that_are_no_tests_cite_nothing(self) -> None:
        for path in ("tests/gpu/run.json", "tests/corpus/a.txt", "tests/README.md", "src/a.cpp"):
            self.write(path, cite("7"))
        self.write("tests/a.cpp", 'auto s = "default 7"; parser.fault(); // a fault of 7 bytes\n')
        self.assertEqual(self.check(row("1")), "")

    def test_a_cited_fault_is_a_row(self) -> None:
        self.write("tests/a_test.cpp", "\n" + cite("7", "7"))
        self.assert_finds(self.check(), "tests/a_test.cpp:2: ", f"{FAULT} 7 is no row", "add one")

    def test_a_row_has_a_test_or_a_reason(self) -> None:
        for test in ("", "tests/a_test.cpp", "`tests/a_test.cpp` and others", "not tested"):
            line = f"| 1 | no disk | a miss | {test} |\n"
            self.assert_finds(self.check(line), "FAULTS.md:5: ", f"'{test}'", "paths in backticks")

    def test_a_reason_has_words(self) -> None:
        line = "| 1 | no disk | a miss | not tested: later |\n"
        self.assert_finds(self.check(line), "'not tested: later' gives no reason", "4 words")

    def test_what_is_not_tested_is_not_cited(self) -> None:
        self.write("tests/a_test.cpp", cite("1"))
        self.assert_finds(
            self.check(row("1")), f"'not tested', and tests/a_test.cpp cites {FAULT} 1"
        )

    def test_a_named_file_exists_in_tests(self) -> None:
        self.write("src/a.cpp", cite("1"))
        for path in ("tests/gone_test.cpp", "tests", "src/a.cpp"):
            self.assert_finds(self.check(row("1", path)), f"`{path}` is no file of tests/")

    def test_a_named_file_cites_the_fault(self) -> None:
        self.write("tests/a_test.cpp", cite("11"))
        output = self.check(row("1", "tests/a_test.cpp"), row("11", "tests/a_test.cpp"))
        self.assert_finds(output, "`tests/a_test.cpp` does not cite it", f"write '{FAULT} 1'")

    def test_every_file_that_cites_is_named(self) -> None:
        self.write("tests/a_test.cpp", cite("1"))
        self.write("tests/b_test.cpp", cite("1"))
        output = self.check(row("1", "tests/a_test.cpp"))
        self.assert_finds(output, f"tests/b_test.cpp cites {FAULT} 1", "add `tests/b_test.cpp`")

    def test_a_file_is_named_once(self) -> None:
        self.write("tests/a_test.cpp", cite("1"))
        output = self.check(row("1", "tests/a_test.cpp", "tests/a_test.cpp"))
        self.assert_finds(output, "`tests/a_test.cpp` is named twice")

    def test_ids_are_unique(self) -> None:
        self.assert_finds(self.check(row("1"), row("2"), row("1")), f":7: line 5 has {FAULT} 1 too")

    def test_an_id_is_a_number(self) -> None:
        for wrong in ("", "0", "01", "1bc", "b1", "F1"):
            self.assert_finds(self.check(row(wrong)), f":5: '{wrong}' as the id", "1b")

    def test_fault_and_promise_are_said(self) -> None:
        self.assert_finds(self.check(row("1", fault="")), f"{FAULT} 1 has no fault")
        self.assert_finds(self.check(row("1", promise="")), f"{FAULT} 1 has no promise")

    def test_a_row_has_four_cells(self) -> None:
        output = self.check(row("1", fault="no disk | no memory"))
        self.assert_finds(output, ":5: 5 cells, 4 expected (id, fault, promise, test)")

    def test_other_spellings_are_no_citations(self) -> None:
        for wrong in ("Fault {}", "faults {}", "fault-{}", "test_fault_{}", "fault  {}"):
            self.write("tests/a_test.cpp", f"// {wrong.format(1)}\n")
            self.assert_finds(self.check(row("1")), "a_test.cpp:1: ", f"write '{FAULT} 1'")

    def test_each_fault_of_a_list_has_the_word(self) -> None:
        self.write("tests/a_test.cpp", f"// {FAULT} 1 and 2\n")
        output = self.check(row("1", "tests/a_test.cpp"), row("2"))
        self.assert_finds(
            output, f"'{FAULT} 1 and 2' cites {FAULT} 1 only", f"'{FAULT} 1, {FAULT} 2'"
        )

    def test_promises_of_security_that_are_tested(self) -> None:
        self.write("tests/a_test.cpp", cite("1", "1b"))
        self.promise("It is refused (1).", "It is a miss,\n  in each process (1, 1b).")
        self.assertEqual(self.check(row("1", "tests/a_test.cpp"), row("1b", "tests/a_test.cpp")), "")

    def test_a_promise_names_rows_that_are_tested(self) -> None:
        for item in ("It is refused.", "It is refused (1)", "It (1) is refused.", "It is (see 1)."):
            self.promise(item)
            self.assert_finds(self.check(row("1")), "SECURITY.md:5: no row of tests/FAULTS.md")
        self.promise("It is refused (2).")
        self.assert_finds(self.check(row("1")), f"SECURITY.md:5: {FAULT} 2 is no row")
        self.promise("It is refused (1).")
        self.assert_finds(self.check(row("1")), f"SECURITY.md:5: {FAULT} 1 is not tested")

    def test_no_promises_are_an_error(self) -> None:
        self.write("SECURITY.md", "# Security\n")
        self.assert_finds(self.check(row("1")), "no section '## Promises' in SECURITY.md")

    def test_no_table_is_an_error(self) -> None:
        self.assert_finds(self.run_script(), "tests/FAULTS.md: ", "No such file")
        self.write("tests/FAULTS.md", "| number | fault |\n|---|---|\n| 1 | no disk |\n")
        self.assert_finds(self.run_script(), "no table '| id | fault | promise | test |'")


if __name__ == "__main__":
    unittest.main()
