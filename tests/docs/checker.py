# SPDX-License-Identifier: Apache-2.0
"""Checks documents: runs their commands, compiles their snippets, looks up what they name."""

import tempfile

from blocks import Document, Finding
from names import Names
from session import Session
from snippets import Snippets

SHELLS = ("sh", "console")


class Checker:
    def __init__(self, root, binaries):
        self.root, self.binaries = root, binaries
        self.names = Names(root, str(binaries / "cukiln"), str(binaries / "cukilnd"))

    def check(self, path, is_history=False):
        """All findings in the document; a history names what was there once, so that only its blocks are tested."""
        document = Document(path, path.read_text())
        findings = list(document.findings)
        if not is_history:
            findings += self.names.check_prose(document)
            findings += [finding for block in document.blocks for finding in self._check_names(block)]
        with tempfile.TemporaryDirectory(prefix="cukiln-docs-") as scratch:
            snippets = Snippets(self.root, scratch)
            for block in document.blocks:
                if block.language and block.language not in SHELLS and not block.skip:
                    findings += snippets.check(block)
        if any(block.language in SHELLS and not block.skip for block in document.blocks):
            findings += self._run(document)
        return sorted(findings, key=lambda finding: finding.line)

    def _run(self, document):
        session = Session(self.root, self.binaries)
        try:
            for block in document.blocks:
                if block.file:
                    session.write(block.file, block.text)
                elif block.language in SHELLS and not block.skip:
                    yield from session.run(block)
        finally:
            session.close()

    def _check_names(self, block):
        if block.language not in SHELLS:
            return
        for at, line in enumerate(block.text.splitlines()):
            is_output = block.language == "console" and not line.startswith(("$ ", "> "))
            if not is_output and not line.lstrip().startswith("#"):
                for message in self.names.check_text(without_comment(line), block.path):
                    yield Finding(block.path, block.line + at, message)


def without_comment(line):
    return line.split(" # ")[0]
