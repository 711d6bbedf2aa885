# SPDX-License-Identifier: Apache-2.0
"""The manual pages have what help has, no more and no less, and are mdoc without mistakes."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

from cli import BINARIES, CliTest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"cukiln": BINARIES.parent / "man" / "cukiln.1", "cukilnd": ROOT / "src" / "cli" / "man" / "cukilnd.8"}
OPTION = r"(?<![\w-])--?[A-Za-z][\w-]*"


def options_of_page(text):
    """Of the items of lists: `.It Fl o , Fl \\-output Ar OUT`."""
    items = "\n".join(re.findall(r"(?m)^\.It (Fl .*)$", text)).replace("\\-", "-")
    return {"-" + name for name in re.findall(r"Fl (\S+)", items)}


def options_of_help(text):
    return {option for line in re.findall(r"(?m)^  (-.*)$", text) for option in re.findall(OPTION, line.split("  ")[0])}


class Manual(CliTest):
    def setUp(self):
        super().setUp()
        self.page = PAGES["cukiln"].read_text()
        self.parts = dict(re.findall(r"(?ms)^\.S[hs] (.*?)\n(.*?)(?=^\.S[hs] |\Z)", self.page))

    def part_of(self, command):
        (text,) = [text for title, text in self.parts.items() if title.startswith(f"cukiln {command}")]
        return text

    def test_it_has_each_command(self):
        help_text = self.run_cli("--help").out
        commands = re.findall(r"(?m)^  ([a-z]+) ", re.search(r"(?s)Commands:\n(.*?)\n\n", help_text)[1])
        titles = [title.split()[1] for title in self.parts if title.startswith("cukiln ")]
        self.assertEqual(titles, commands)
        for command in commands:
            self.part_of(command)

    def test_it_has_each_option_of_each_command(self):
        everywhere = options_of_help(self.run_cli("--help").out)
        self.assertEqual(options_of_page(self.parts["OPTIONS"]), everywhere)
        for title in self.parts:
            if title.startswith("cukiln "):
                command = title.split()[1]
                known = options_of_help(self.run_cli("help", command).out.split("Examples:")[0]) - everywhere
                self.assertEqual(options_of_page(self.parts[title]), known, command)

    def test_it_has_each_setting(self):
        variables = re.findall(r"CUKILN_\w*\w", self.parts["ENVIRONMENT"].split(".Bl", 1)[1])
        settings = self.run_json("config")["settings"]
        self.assertEqual(set(variables), {"CUKILN_" + setting["name"].upper() for setting in settings})

    def test_it_has_each_exit_code(self):
        help_text = self.run_cli("--help").out.split("Exit codes:")[1]
        codes = re.findall(r"(?m)^\.It (\d)$", self.parts["EXIT STATUS"])
        self.assertEqual(codes, re.findall(r"(?m)^  (\d)  ", help_text))

    def test_it_has_the_version(self):
        self.assertIn(f".Os {self.run_cli('--version').out.strip()}\n", self.page)
        self.assertNotIn("@", re.sub(r"@(?:host|cache)", "", self.page))

    @unittest.skipUnless((BINARIES / "cukilnd").exists(), "a build without cukilnd")
    def test_the_daemons_page_has_each_option(self):
        done = subprocess.run([BINARIES / "cukilnd", "--help"], capture_output=True, text=True, check=True)
        text = PAGES["cukilnd"].read_text()
        listed = options_of_page(text)
        self.assertEqual(listed - {"--help"}, set(re.findall(OPTION, done.stdout)) - {"--help"})
        synopsis = re.search(r"(?s)\.Sh SYNOPSIS\n(.*?)\.Sh", text)[1]
        self.assertEqual({"-" + name for name in re.findall(r"Fl (\S+)", synopsis)}, listed)


@unittest.skipUnless(shutil.which("groff"), "groff is not installed")
class Typeset(unittest.TestCase):
    def groff(self, page, *options):
        done = subprocess.run(["groff", "-man", "-mdoc", "-ww", "-Kutf8", *options, page],
                              capture_output=True, text=True, check=True)  # fmt: skip
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_groff_has_nothing_to_say(self):
        for page in PAGES.values():
            self.groff(page, "-z")

    def test_text_of_commands_can_be_copied(self):
        text = self.groff(PAGES["cukiln"], "-Tascii", "-P-cbou")
        for words in ("cukiln compile scale.cu --name 'scale<float, 4>'", "--max-size SIZE", '"$(cukiln completion bash)"'):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
