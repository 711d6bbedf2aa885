# SPDX-License-Identifier: Apache-2.0
"""Checks the snippets that are no commands: C and C++ compile, Python's names are the package's, data parses."""

import ast
import configparser
import json
import os
import re
import subprocess
import tomllib
from functools import cached_property
from pathlib import Path

from blocks import Finding

COMPILERS = {"c": (os.environ.get("CUKILN_TEST_CC", "cc"), "-std=c11", ".c"),
             "cpp": (os.environ.get("CUKILN_TEST_CXX", "c++"), "-std=c++17", ".cpp")}


class Snippets:
    def __init__(self, root, scratch):
        self.root, self.scratch = Path(root), Path(scratch)

    def check(self, block):
        """What is wrong with a block in a language that is no shell's."""
        if block.language in COMPILERS:
            return self._compile(block)
        if block.language == "python":
            return self._check_python(block)
        if block.language == "cmake":
            return self._check_cmake(block)
        return self._parse(block)

    def _compile(self, block):
        """A snippet without a function around it is the body of one; `given` declares what it uses."""
        compiler, standard, suffix = COMPILERS[block.language]
        lines = block.text.splitlines()
        includes = [line for line in lines if line.startswith("#include")]
        body = [f'#line {block.line} "{block.path}"', *("" if line in includes else line for line in lines)]
        if not re.search(r"^\w.*\)\s*(?:const )?\{", block.text, re.MULTILINE):
            body = ["int snippet(void);", "int snippet(void) {", *body, "return 0;", "}"]
        umbrella = "cukiln/cukiln.h" if block.language == "c" else "cukiln/cukiln.hpp"
        text = "\n".join([f"#include <{umbrella}>", *includes, block.given, *body]) + "\n"
        file = self.scratch / f"snippet{suffix}"
        file.write_text(text)
        done = subprocess.run(
            [compiler, standard, "-fsyntax-only", "-fdiagnostics-color=never", "-I", self.root / "include", file],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if done.returncode == 0:
            return []
        first = re.search(rf"{re.escape(str(block.path))}:(\d+):.*?error: (.*)", done.stderr)
        line, what = (int(first[1]), first[2]) if first else (block.line, done.stderr.strip())
        return [Finding(block.path, line, what)]

    def _check_python(self, block):
        try:
            tree = ast.parse(block.given + block.text)
        except SyntaxError as error:
            at = (error.lineno or 1) - block.given.count("\n") - 1
            return [Finding(block.path, block.line + at, f"Python: {error.msg}")]
        modules = {}  # of a name in the snippet: the module of the package that it means
        findings = []

        def need(module, name, node):
            if name not in self.package.get(module, {name}):
                line = block.line + node.lineno - 1 - block.given.count("\n")
                findings.append(Finding(block.path, line, f"{module} has no '{name}'"))

        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    parent, _, child = alias.name.rpartition(".")
                    if parent in self.package:
                        need(parent, child, node)
                    if alias.name.split(".")[0] == "cukiln":
                        whole = alias.asname or "cukiln"
                        modules[whole] = alias.name if alias.asname else "cukiln"
            elif isinstance(node, ast.ImportFrom) and node.module in self.package:
                for alias in node.names:
                    need(node.module, alias.name, node)
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                module = self._module_of(node.value, modules)
                if module in self.package:
                    need(module, node.attr, node)
        return findings

    def _module_of(self, node, modules):
        if isinstance(node, ast.Name):
            return modules.get(node.id, "")
        if isinstance(node, ast.Attribute):
            return f"{self._module_of(node.value, modules)}.{node.attr}"
        return ""

    @cached_property
    def package(self):
        """Module -> the names in it, its submodules among them, without importing it."""
        root = self.root / "src/bindings/python"
        found = {}
        for file in sorted(root.glob("cukiln/**/*.py")):
            name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            names = found.setdefault(name, {"__version__", "__doc__", "__file__"})
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    names.update(alias.asname or alias.name for alias in node.names)
                elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    names.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
        for name in list(found):
            parent, _, child = name.rpartition(".")
            found.get(parent, set()).add(child)
        return found

    def _check_cmake(self, block):
        findings = []
        header = (self.root / "include/cukiln/version.hpp").read_text()
        version = ".".join(re.findall(r"(?m)^#define CUKILN_VERSION_(?:MAJOR|MINOR) (\d+)", header))
        cmake = "\n".join(path.read_text() for path in [*self.root.glob("src/**/CMakeLists.txt"),
                                                        *self.root.glob("scripts/cmake/*")])  # fmt: skip
        for at, line in enumerate(block.text.splitlines()):
            asked = re.search(r"find_package\(cukiln (\d+\.\d+)", line)
            if asked and asked[1] != version:
                findings.append(Finding(block.path, block.line + at, f"cukiln {asked[1]}: this is {version}"))
            for target in re.findall(r"\bcukiln::(\w+)", line):
                if f"cukiln::{target}" not in cmake and f"EXPORT_NAME {target}" not in cmake:
                    findings.append(Finding(block.path, block.line + at, f"there is no target cukiln::{target}"))
        return findings

    def _parse(self, block):
        try:
            if block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                tomllib.loads(block.text)
            elif block.language == "ini":
                configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
        except (ValueError, configparser.Error) as error:
            at = getattr(error, "lineno", 1) or 1
            return [Finding(block.path, block.line + at - 1, f"{block.language}: {error}")]
        return []
