# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a document as a reader would: in a home of their own, one block after the other."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from blocks import Finding
from masks import Comparison, lines_of

TIMEOUT_S = 600  # of a command that hangs; one that compiles much takes minutes where the machine is busy
END = "\x01"  # in no output: ends what one command printed
AFTER = "\x02"  # the same for a script
SCRIPT_HEAD = 2  # lines before those of the document


@dataclass
class Command:
    line: int
    text: str
    output: list
    output_line: int


def commands_of(block):
    """`$ command` with what follows as its output; a line that ends in a backslash is continued."""
    commands = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        if lines[at].startswith("$ "):
            begin, text = at, lines[at][2:]
            while text.endswith("\\") and at + 1 < len(lines):
                at += 1
                text += "\n" + lines[at].removeprefix("> ")
            commands.append(Command(block.line + begin, text, [], block.line + at + 1))
        elif commands:
            commands[-1].output.append(lines[at])
        at += 1
    return commands


class Session:
    """A folder with the checkout's files, in which commands of the build folder are in PATH."""

    def __init__(self, root, binaries):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-docs-"))
        self.work = self.folder / "work"
        for name in ("work", "run", "tmp"):
            (self.folder / name).mkdir(mode=0o700)
        for path in root.iterdir():
            if path.name not in ("build", ".git"):
                (self.work / path.name).symlink_to(path)
        (self.work / "build/release").mkdir(parents=True)
        (self.work / "build/release/bin").symlink_to(binaries)
        self.environment = {name: value for name, value in os.environ.items()
                            if name in ("CUKILN_NVRTC_LIBRARY", "CUKILN_INCLUDE_PATH", "LANG")
                            or not name.startswith(("CUKILN_", "XDG_", "LC_"))}  # fmt: skip
        self.environment |= {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder / "run"),
                             "TMPDIR": str(self.folder / "tmp"), "CUKILN_SYSTEM_STORE": str(self.folder / "system"),
                             "CUKILN_CUDA_LIBRARY": str(self.folder / "no-driver.so"),
                             "PATH": f"{binaries}:{os.environ['PATH']}"}
        self.keys = {}

        self.shell = subprocess.Popen(
            ["bash", "--norc"], cwd=self.work, env=self.environment, text=True, errors="replace", bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def close(self):
        if (self.folder / "run/cukiln/cukilnd.sock").exists():
            self._do("cukiln daemon stop --quiet")
        self.shell.stdin.close()
        self.shell.wait(TIMEOUT_S)
        self.shell.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        (self.work / name).write_text(text + "\n")

    def run(self, block):
        """What is wrong with the block; empty: its commands work, and print what it says."""
        if block.language != "console":
            return self._run_script(block)
        if block.given:
            self._do(block.given)
        return [finding for command in commands_of(block) for finding in self._run_command(block, command)]

    def _do(self, command):
        """Exit code and output. The shell is the same for a whole document, so that its folder and variables stay."""
        if self.shell.poll() is not None:
            return 1, "the shell has ended: by an earlier command"
        watchdog = threading.Timer(TIMEOUT_S, os.killpg, (self.shell.pid, 9))
        watchdog.start()
        self.shell.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; printf '{END}%d\\n' $?\n")
        output = ""
        for line in self.shell.stdout:
            output += line
            if END in line:
                break
        watchdog.cancel()
        output, _, code = output.partition(END)
        if not code:
            return 1, f"{output}\nthe shell ended: by the command, or after {TIMEOUT_S} s"
        return int(code), output

    def _run_script(self, block):
        script = self.folder / "tmp/block.sh"
        script.write_text("failed=; set -o pipefail\ntrap 'failed=${failed:-$LINENO}' ERR\n"
                          f"{block.given}{block.text}\ntrap - ERR; set +o pipefail; echo '{AFTER}'$failed\n")
        _, output = self._do(f"source {script}")
        output, _, line = output.partition(AFTER)
        if not line.strip():
            return []
        at = max(int(line) - SCRIPT_HEAD - block.given.count("\n") - 1, 0)
        what = block.text.splitlines()[at].strip()
        return [Finding(block.path, block.line + at, f"'{what}' fails:\n{indented(output.splitlines())}")]

    def _run_command(self, block, command):
        code, output = self._do(self._with_own_keys(command.text))
        printed = lines_of(output)
        expected = [(command.output_line + i, line) for i, line in enumerate(command.output) if line.strip()]
        compared = Comparison([line for _, line in expected], printed)
        self.keys.update(compared.keys())
        if compared.first_missing is not None:
            line, text = expected[compared.first_missing]
            what = f"'{command.text}' does not print '{text.strip()}', but:\n{indented(printed)}"
            return [Finding(block.path, line, what)]
        if compared.surplus is not None:
            what = f"'{command.text}' also prints '{compared.surplus.strip()}':\n{indented(printed)}"
            return [Finding(block.path, command.line, what)]
        if code != 0 and not expected:
            return [Finding(block.path, command.line, f"'{command.text}' ends with exit code {code}")]
        return []

    def _with_own_keys(self, text):
        """A key that the document showed stands for the one that this run made in its place."""
        def own(match):
            return next((mine for theirs, mine in self.keys.items() if theirs.startswith(match[0])), match[0])

        return re.sub(r"\b[0-9a-f]{6,64}\b", own, text)


def indented(lines):
    return "\n".join(f"  {line}" for line in lines)
