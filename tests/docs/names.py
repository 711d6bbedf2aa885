# SPDX-License-Identifier: Apache-2.0
"""Checks what a document names and no test runs: commands, options, scripts, files, variables, links."""

import json
import re
import shlex
import subprocess
from functools import cache, cached_property

from blocks import Document, Finding

SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
VARIABLE = re.compile(r"\bCUKILN_[A-Z0-9_]*[A-Z0-9]\b")
RESULT = re.compile(r"(?<![\w-])(?:cpu|[a-z]+\d[\w-]*?)-[a-z]+\.json\b")  # of tests/gpu/results
OPTION = re.compile(r"--?[A-Za-z][\w-]*")
GLOBAL_WITH_VALUE = ("--store", "--color")
COMPILER_COMMANDS = ("compile", "explain")  # take flags of NVRTC and nvcc as they are
CODE_SUFFIXES = {".cpp", ".hpp", ".h", ".py", ".cmake", ".txt", ".json", ".c", ".in", ""}
PLACEHOLDER = re.compile(r"[A-Z_]+(?:\.\w+)?…?|…|<.*>|\W*")


def commands_in(text):
    """The simple commands of a piece of shell, as lists of words; what is in `$(…)` as well."""
    found = []
    for inner in re.findall(r"\$\(([^()]*)\)", text):
        found += commands_in(inner)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = re.sub(r"^\$ ", "", line.strip())
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that another line closes
            words = line.split()
        command = []
        for word in [*words, ";"]:
            if not re.fullmatch(r"[;|&()]+", word):
                command.append(word)
            elif command:
                found.append(command)
                command = []
    return [stripped for command in found if (stripped := without_prefix(command))]


def without_prefix(words):
    """Without assignments and programs that run the rest."""
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "env", "exec", "time")):
        words = words[1:]
    return ["cukiln", *words[3:]] if words[1:3] == ["-m", "cukiln"] else words


@cache
def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


class Names:
    def __init__(self, root, cukiln, cukilnd):
        self.root, self.cukiln, self.cukilnd = root, cukiln, cukilnd

    @cached_property
    def commands(self):
        part = re.search(r"(?s)Commands:\n(.*?)\n\n", output_of(self.cukiln, "--help"))[1]
        return {"help", *re.findall(r"(?m)^  ([a-z]+) ", part)}

    def options(self, command=""):
        """Those of a command, or those of all."""
        text = output_of(self.cukiln, *([command] if command else []), "--help").split("Examples:")[0]
        lines = re.findall(r"(?m)^  (-.*)$", text)
        return {option for line in lines for option in OPTION.findall(line.split("  ")[0])}

    def _actions(self, command):
        """`start|stop|status`: the words that a command takes one of."""
        usage = re.search(rf"cukiln {command} ([a-z|]+\|[a-z|]+)", output_of(self.cukiln, command, "--help"))
        return usage[1].split("|") if usage else []

    @cached_property
    def presets(self):
        presets = json.loads((self.root / "CMakePresets.json").read_text())
        return {p["name"] for kind in presets if kind.endswith("Presets") for p in presets[kind]}

    @cached_property
    def top_level(self):
        return {path.name for path in self.root.iterdir() if path.name not in ("build", "dist", ".git")}

    @cached_property
    def settings(self):
        settings = json.loads(output_of(self.cukiln, "config", "--json"))["settings"]
        return {"CUKILN_" + setting["name"].upper() for setting in settings}

    @cached_property
    def variables(self):
        found = set(self.settings)
        for top in ("src", "include", "scripts", "examples", "tests", "CMakeLists.txt"):
            files = [self.root / top, *(self.root / top).rglob("*")]
            for file in files:
                if file.is_file() and file.suffix in CODE_SUFFIXES:
                    found.update(VARIABLE.findall(file.read_text(errors="replace")))
        return found

    def check_command(self, words):
        """What is wrong with a command's words."""
        program = words[0]
        if re.fullmatch(r"(?:\S*/)?cukiln", program):
            return self._check_cukiln(words[1:])
        if re.fullmatch(r"(?:\S*/)?cukilnd", program):
            known = set(OPTION.findall(output_of(self.cukilnd, "--help")))
            return [f"cukilnd has no option '{o}'" for o in options_of(words[1:]) if o not in known]
        if re.match(r"(?:\./)?(?:scripts|\.ci)/\w", program):
            return self._check_script(program.removeprefix("./"), words[1:])
        return self._check_presets(words[1:]) if program in ("cmake", "ctest") else []

    def _check_cukiln(self, words):
        at = 0
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in GLOBAL_WITH_VALUE else 1
        command = words[at] if at < len(words) else ""
        if command and PLACEHOLDER.fullmatch(command):
            command = ""
        if command not in self.commands | {""}:
            return [f"cukiln has no command '{command}'"]
        asked = words[at + 1 :]
        if command == "help":
            command = asked[0] if asked and not PLACEHOLDER.fullmatch(asked[0]) else ""
            return [] if command in self.commands | {""} else [f"cukiln has no command '{command}'"]
        known = self.options() | self.options(command)
        wrong = []
        for option in options_of(words):
            if option in known or (option[:2] in known and not option.startswith("--")):
                continue
            if not (command in COMPILER_COMMANDS and self._is_compiler_flag(option)):
                wrong.append(f"'cukiln {command}' has no option '{option}'")
        actions, rest = self._actions(command) if command else [], [w for w in asked if w[:1] != "-"]
        if actions and rest and rest[0] not in actions and not PLACEHOLDER.fullmatch(rest[0]):
            wrong.append(f"'cukiln {command}' takes {', '.join(actions)}, not '{rest[0]}'")
        return wrong

    def _is_compiler_flag(self, option):
        text = (self.root / "src/core/key/nvcc_flags.cpp").read_text()
        return option[:2] == "-O" or re.search(rf'"-*{re.escape(option.lstrip("-"))}[="]', text) is not None

    def _check_script(self, path, words):
        script = self.root / path
        if script.is_dir():
            return []
        if not script.is_file():
            return [f"there is no {path}"]
        text = script.read_text()
        wrong = [f"{path} has no option '{option}'" for option in options_of(words)
                 if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)]  # fmt: skip
        return wrong + self._check_presets(words)

    def _check_presets(self, words):
        named = [b for a, b in zip(words, words[1:]) if a == "--preset"]
        named += [word.split("=")[1] for word in words if word.startswith("--preset=")]
        return [f"there is no preset '{name}'" for name in named
                if name not in self.presets and not PLACEHOLDER.fullmatch(name)]  # fmt: skip

    def check_path(self, word, document):
        """A word that begins with a folder of the checkout is a file there, or a pattern of some."""
        word = re.sub(r"<[^<>]*>|…", "*", word.strip("`'\".,;:()")).removeprefix("./")
        word = re.sub(r":\d+(-\d+)?$|#.*$", "", word)
        if not re.fullmatch(r"[\w.*{},/+-]+", word) or word.split("/")[0] not in self.top_level:
            return []
        bases = (self.root, document.parent)
        if any(next(base.glob(form.rstrip("/")), None) for base in bases for form in braces(word)):
            return []
        return [f"there is no {word}"]

    def check_text(self, text, document):
        """What is wrong in a piece of shell, a command or a name."""
        wrong = [message for words in commands_in(text) for message in self.check_command(words)]
        for word in re.split(r"[\s=]+", text):
            if "/" in word:
                wrong += self.check_path(word, document)
        results = self.root / "tests/gpu/results"
        wrong += [f"there is no result {name}" for name in RESULT.findall(text) if not (results / name).exists()]
        wrong += [f"there is no variable {name}" for name in VARIABLE.findall(text) if name not in self.variables]
        return list(dict.fromkeys(wrong))

    def check_prose(self, document):
        """The names in inline code, and the links."""
        def line_of(position):
            return document.prose.count("\n", 0, position) + 1

        for span in SPAN.finditer(document.prose):
            if "\n\n" not in span[1] and "|" not in span[1].replace("\\|", ""):
                for message in self.check_text(re.sub(r"\s*\n\s*", " ", span[1]), document.path):
                    yield Finding(document.path, line_of(span.start()), message)
        for link in LINK.finditer(document.prose):
            if not re.match(r"[a-z]+:", link[1]):
                for message in self._check_link(link[1], document):
                    yield Finding(document.path, line_of(link.start()), message)

    def _check_link(self, target, document):
        name, _, anchor = target.partition("#")
        path = document.path.parent / name if name else document.path
        if not path.exists():
            return [f"a link to {name}, which is not there"]
        if anchor and path.suffix == ".md" and anchor not in Document(path, path.read_text()).headings:
            return [f"a link to {target}: there is no such heading"]
        return []


def options_of(words):
    """Up to `--`, without their values."""
    end = words.index("--") if "--" in words else len(words)
    return [word.split("=")[0].rstrip("…]") for word in words[:end] if OPTION.match(word)]


def braces(word):
    """`a.{b,c}` as the shell expands it."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if not match:
        return [word]
    return [form for part in match[1].split(",") for form in braces(word[: match.start()] + part + word[match.end() :])]
