# SPDX-License-Identifier: Apache-2.0
"""The tables of measurements in the documents are those that tests/bench/tables.py makes of the kept runs."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))

import tables  # noqa: E402

MARK = "<!-- table: rivals, of tests/bench/tables.py -->"


class TablesTest(unittest.TestCase):
    def setUp(self):
        self.tables = tables.Tables(ROOT / "tests/gpu/results")

    def test_the_documents_have_the_tables_of_the_kept_runs(self):
        done = subprocess.run([sys.executable, ROOT / "tests/bench/tables.py", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_every_table_is_in_a_document(self):
        text = "".join((ROOT / name).read_text() for name in tables.DOCUMENTS)
        self.assertEqual(set(tables.MARK.findall(text)), set(tables.TABLES))

    def test_a_changed_number_is_written_anew(self):
        text = self.tables.rewrite(f"before\n{MARK}\n\n| \n\nafter\n")
        self.assertIn("| `RawModule`, loaded | 211 µs | 2,971 µs, cupy", text)
        self.assertRegex(text, r"(?s)^before\n.* × \|\n\nafter\n$")
        self.assertEqual(self.tables.rewrite(text.replace("211 µs", "212 µs")), text)
        self.assertEqual(self.tables.rewrite(text), text)

    def test_an_unknown_table_or_result_is_named(self):
        with self.assertRaisesRegex(LookupError, "no table 'nothing': expected summary, "):
            self.tables.rewrite("<!-- table: nothing, of tests/bench/tables.py -->\n\n")
        with self.assertRaisesRegex(LookupError, r"h200-bench.json has no result 'flight', case '', beside ''"):
            self.tables.text(tables.Line("x", "h200-bench", "flight"))

    def test_numbers_have_three_digits(self):
        self.assertEqual(tables.quantity([9.484, 160.2], "us"), "9.48, 160 µs")
        self.assertEqual(tables.quantity([76170], "us"), "76.2 ms")
        self.assertEqual(tables.quantity([4244, 10940], "us"), "4,244, 10,940 µs")
        self.assertEqual(tables.quantity([16], ""), "16")


if __name__ == "__main__":
    unittest.main()
