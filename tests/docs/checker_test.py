# SPDX-License-Identifier: Apache-2.0
"""The checker of documents finds each thing that it is there to find, and nothing in a document that holds."""

import os
import tempfile
import textwrap
import unittest
from pathlib import Path

from blocks import Document
from checker import Checker
from prose import check_prose

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
CHECKER = Checker(ROOT, BINARIES)
VARIABLE = "CUKILN_" + "NO_SUCH"  # in two pieces, or this file would be one that has it


class CheckerTest(unittest.TestCase):
    def check(self, text):
        """The findings as lines, without the document's folder."""
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "page.md"
            document.write_text(textwrap.dedent(text).lstrip("\n"))
            return [str(finding).removeprefix(f"{folder}/") for finding in CHECKER.check(document)]

    def assert_finds(self, text, line, *words):
        findings = self.check(text)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(f"page.md:{line}: "), findings[0])
        for word in words:
            self.assertIn(word, findings[0])


class Prose(CheckerTest):
    def test_what_is_there_passes(self):
        self.assertEqual([], self.check("""
            # A page

            `cukiln ls --arch sm_90a`, `cukiln help gc`, `cukiln compile a.cu -O3 -DX=1`, `cukilnd --verbose`,
            `scripts/test --preset dev -- -R store`, `src/base`, `src/cli/*.cpp`, `tests/unit/<layer>`,
            `CUKILN_STORE`, `python -m cukiln ls`, `cukiln COMMAND --json`, [this](#a-page), `cukiln daemon
            status`.
            """))  # fmt: skip

    def test_wrong_names_are_found(self):
        for text, *words in (
            ("`cukiln list`", "no command 'list'"),
            ("`cukiln help frob`", "no command 'frob'"),
            ("`cukiln --store x ls --olny`", "'cukiln ls' has no option '--olny'"),
            ("`cukiln compile a.cu --frobnicate`", "no option '--frobnicate'"),
            ("`cukiln daemon pause`", "not 'pause'"),
            ("`cukilnd --frob`", "cukilnd has no option '--frob'"),
            ("`scripts/test --prset dev`", "scripts/test has no option '--prset'"),
            ("`scripts/test --preset devel`", "no preset 'devel'"),
            ("`scripts/no-such`", "no scripts/no-such"),
            ("`src/base/no_such.hpp`", "src/base/no_such.hpp"),
            ("`h200-nothing.json`", "no result h200-nothing.json"),
            ("`h100-80gb-nothing.json`", "no result h100-80gb-nothing.json"),
            (f"`{VARIABLE}=1`", VARIABLE),
            ("[link](no-such.md)", "no-such.md"),
            ("[link](#no-such)", "no such heading"),
        ):
            with self.subTest(text):
                self.assert_finds(f"# Page\n\nText\n{text}\n", 4, *words)


class Commands(CheckerTest):
    def test_commands_that_work_pass(self):
        self.assertEqual([], self.check("""
            <!-- test: given
            name=kiln
            -->
            ```sh
            echo $name > file    # a comment
            test -e scripts/test
            ```

            ```console
            $ cat file
            kiln
            $ cukiln --version
            cukiln 0.0.1
            $ seq 4
            1
            …
            4
            ```
            """))  # fmt: skip

    def test_a_command_that_fails_is_found(self):
        self.assert_finds("```sh\ntrue\nls no-such-file\ntrue\n```\n", 3, "'ls no-such-file' fails", "cannot access")
        self.assert_finds("```console\n$ true\n$ false\n```\n", 3, "exit code 1")
        self.assert_finds("```console\n$ true\n$ exit 3\n```\n", 3, "the shell ended")

    def test_other_output_is_found(self):
        self.assert_finds("```console\n$ echo one; echo two\none\ntoo\n```\n", 4, "does not print 'too'", "  two")
        self.assert_finds("```console\n$ echo one; echo two\none\n```\n", 2, "also prints 'two'")
        self.assert_finds("```console\n$ seq 9\n1\n…\n10\n```\n", 5, "does not print '10'")

    def test_what_differs_from_run_to_run_does_not_count(self):
        self.assertEqual([], self.check("""
            ```console
            $ echo "saxpy  compiled   52.5 ms  4.0 KiB  e783aac974f9  14 regs  /tmp/a/x.cu"
            saxpy  compiled  1.2 s  16 KiB  0123456789ab  20 regs  /other/x.cu
            $ echo e783aac9 e783aac974f9
            e783aac9 fedcba987654
            ```
            """))  # fmt: skip

    def test_a_key_stands_for_the_one_of_this_run(self):
        self.assertEqual([], self.check("""
            ```console
            $ echo aaaaaaaaaaaa
            bbbbbbbbbbbb
            $ echo bbbbbbbb | tr a x
            xxxxxxxxxxxx
            ```
            """))  # fmt: skip

    def test_a_block_can_be_a_file(self):
        text = "<!-- test: file a.json -->\n```json\n{}\n```\n```console\n$ cat a.json\n%s\n```\n"
        self.assertEqual([], self.check(text % "{}"))
        self.assert_finds(text % "[]", 7, "does not print '[]'")

    def test_commands_that_are_not_run_have_their_names_checked(self):
        skip = "<!-- test: skip gpu -->\n```sh\n"
        self.assertEqual([], self.check(f"{skip}exit 1\n```\n"))
        self.assert_finds(f"{skip}cukiln preload --devcies 0\n```\n", 3, "'--devcies'")
        self.assert_finds(f"{skip}cat examples/no_such.cpp\n```\n", 3, "examples/no_such.cpp")


class Snippets(CheckerTest):
    def test_snippets_that_hold_pass(self):
        self.assertEqual([], self.check("""
            <!-- test: given
            cukiln::KernelLoader& loader();
            -->
            ```cpp
            loader().seal();
            ```

            ```python
            import cukiln
            cukiln.get_cuda_module("a", ["a.cu"])
            ```

            ```cmake
            target_link_libraries(engine PRIVATE cukiln::cukiln)
            ```

            ```json
            {"format": 1}
            ```
            """))  # fmt: skip

    def test_mistakes_are_found(self):
        self.assert_finds("```cpp\nint a;\ncukiln::NoSuch b;\n```\n", 3, "NoSuch")
        self.assert_finds("```c\nint a;\nno_such b;\n```\n", 3, "no_such")
        self.assert_finds("```python\nimport cukiln\ncukiln.no_such()\n```\n", 3, "cukiln has no 'no_such'")
        self.assert_finds("```python\nfrom cukiln.torch import NoSuch\n```\n", 2, "cukiln.torch has no 'NoSuch'")
        self.assert_finds("```python\ndef f(:\n```\n", 2, "Python")
        self.assert_finds("```cmake\nfind_package(cukiln 9.9)\n```\n", 2, "9.9")
        self.assert_finds("```cmake\nx(cukiln::no_such)\n```\n", 2, "cukiln::no_such")
        self.assert_finds("```json\n{\n```\n", 2, "json")


class Marks(CheckerTest):
    def test_a_mark_that_means_nothing_is_found(self):
        self.assert_finds("<!-- test: skip lazy -->\n```sh\ntrue\n```\n", 1, "'skip lazy' is no mark")
        self.assert_finds("<!-- test: skip gpu -->\n\ntext\n", 1, "without a block")
        self.assert_finds("```haskell\n```\n", 1, "a block in 'haskell'")
        self.assert_finds("```\n$ cukiln ls\n```\n", 1, "'console' only")


class Limits(unittest.TestCase):
    def findings(self, text):
        return [str(finding) for finding in check_prose(Document("page.md", text))]

    def test_a_cell_that_is_a_paragraph_is_found(self):
        self.assertEqual(self.findings(f"| a | {'x' * 200} |\n|---|---|\n"), [])
        self.assertIn("page.md:2: a cell of 201 characters", self.findings(f"\n| a | {'x' * 201} |\n")[0])

    def test_long_sentences_are_found(self):
        long, short = f"A{' word' * 18}.", f"A{' word' * 17}."
        self.assertEqual(self.findings(f"{short} {long}\n{short}\n\n## {long}\n\n- {short}\n\n| {long} |\n"), [])
        self.assertIn("sentences have 19 words", self.findings(f"- {long}\n- {short}\n  {long}\n\n```\n{short}\n```\n")[0])


if __name__ == "__main__":
    unittest.main()
