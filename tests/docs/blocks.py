# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a Markdown document, and the marks that say how each is tested.

A mark is an HTML comment on the lines before a block, which no reader of the rendered page sees:

    <!-- test: skip REASON -->   not run; the names in it are checked. REASON is one of REASONS
    <!-- test: file NAME -->     the commands after it find the block's text in this file
    <!-- test: given             what the block needs and does not show: commands, declarations,
    mkdir project                imports, in the block's language; it comes before the block
    -->
"""

import re
from dataclasses import dataclass
from pathlib import Path

REASONS = ("gpu", "service-manager", "cluster", "root", "slow")
CHECKED = ("sh", "console", "c", "cpp", "python", "cmake", "json", "toml", "ini")
UNCHECKED = ("", "text", "nginx", "mermaid", "yaml", "dockerfile", "sql", "diff")

FENCE = re.compile(r"^(\s*)```(\S*)\s*$")
MARK = re.compile(r"^\s*<!--\s*test:\s*(.*?)\s*(-->)?\s*$")


@dataclass
class Block:
    path: Path
    line: int  # of the first line of its text
    language: str
    text: str
    skip: str = ""
    given: str = ""
    file: str = ""


@dataclass
class Finding:
    path: Path
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
class Mark:
    line: int
    skip: str = ""
    given: str = ""
    file: str = ""


class Document:
    """The blocks of a document, the prose between them with blocks and marks blanked, what is wrong with its marks."""

    def __init__(self, path, text):
        self.path, self.blocks, self.findings = path, [], []
        self.headings = set()
        self._lines = text.splitlines()
        self._prose = []
        self._mark = None
        at = 0
        while at < len(self._lines):
            at = self._read(at)
        self.prose = "\n".join(self._prose)
        self._unused_mark()

    def find(self, line, message):
        self.findings.append(Finding(self.path, line, message))

    def _read(self, at):
        line = self._lines[at]
        if fence := FENCE.match(line):
            return self._read_block(at, *fence.groups())
        if mark := MARK.match(line):
            return self._read_mark(at, *mark.groups())
        if line.strip():
            self._unused_mark()
        if heading := re.match(r"#+\s+(.*)", line):
            self.headings.add(anchor_of(heading[1]))
        self._prose.append(line)
        return at + 1

    def _read_block(self, at, indent, language):
        end = at + 1
        while end < len(self._lines) and self._lines[end].strip() != "```":
            end += 1
        text = "\n".join(line.removeprefix(indent) for line in self._lines[at + 1 : end])
        mark = self._mark or Mark(at)
        self._mark = None
        if language not in CHECKED + UNCHECKED:
            self.find(at + 1, f"a block in '{language}': expected {', '.join((*CHECKED, *UNCHECKED[1:]))}")
        if language not in CHECKED and re.search(r"^\$ ", text, re.MULTILINE):
            self.find(at + 1, "a block with '$ ' commands is tested in the language 'console' only")
        self.blocks.append(Block(self.path, at + 2, language, text, mark.skip, mark.given, mark.file))
        self._prose += [""] * (min(end + 1, len(self._lines)) - at)
        return end + 1

    def _read_mark(self, at, words, closed):
        end = at
        while not closed and end + 1 < len(self._lines) and self._lines[end].strip() != "-->":
            end += 1
        mark = self._mark or Mark(at)
        kind, _, rest = words.partition(" ")
        if kind == "skip" and rest in REASONS and closed:
            mark.skip = rest
        elif kind == "file" and re.fullmatch(r"[\w.-]+", rest) and closed:
            mark.file = rest
        elif kind == "given" and not rest and not closed:
            mark.given = "\n".join(self._lines[at + 1 : end]) + "\n"
        else:
            known = f"'skip' with one of {', '.join(REASONS)}, 'file' with a name, or 'given'"
            self.find(at + 1, f"'{words}' is no mark: expected {known}")
        self._mark = mark
        self._prose += [""] * (end + 1 - at)
        return end + 1

    def _unused_mark(self):
        if self._mark is not None:
            self.find(self._mark.line + 1, "a mark without a block after it")
            self._mark = None


def anchor_of(heading):
    """As GitHub makes it of a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
