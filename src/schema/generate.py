#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the fields of src/schema/schema.toml to every surface that has them.

A surface has a section between two marks, in the comments of its language:

    // schema: Stats
    // end of schema

--check writes nothing and fails if a section differs from the schema, is missing, or is not known.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 100
Row = dict[str, Any]
Lines = Iterator[str]
SCHEMA: dict[str, dict[str, Row]] = tomllib.loads((ROOT / "src/schema/schema.toml").read_text(encoding="utf-8"))
for _record, _rows in SCHEMA.items():
    for _place, (_name, _row) in enumerate(_rows.items() if _record not in ("kinds", "records") else ()):
        _kind = SCHEMA["records"].get(_record, {}).get("kind")  # with one: one order everywhere
        _row = ({"kind": _kind, "c": _place} if _kind else {}) | _row
        _rows[_name] = {"cpp": _name, "c_name": _name} | SCHEMA["kinds"].get(_row.get("kind", ""), {}) | _row
SECTIONS: dict[tuple[str, str], Callable[[], Lines]] = {}  # by file and name

_COMMENT = r"(?://|#|\.\\\")"
SECTION = re.compile(
    rf"(?P<begin>^(?P<indent> *){_COMMENT} schema: (?P<name>[\w ]+\w)[^\n]*\n).*?(?P<end>^ *{_COMMENT} end of schema)"
    r"|(?P<left><!-- schema: (?P<page>[\w ]+\w) -->).*?(?P<right><!-- end of schema -->)",
    re.MULTILINE | re.DOTALL,
)


def section(file: str, name: str, table: bool = False) -> Callable[[Callable[[], Lines]], Callable[[], Lines]]:
    """Registers a function that gives a section's lines; `<///>TEXT` is the comment of the next one. The rows of a
    table in C++ are longer than a line of code is."""

    def register(lines: Callable[[], Lines]) -> Callable[[], Lines]:
        SECTIONS[file, name] = (lambda: iter(["// clang-format off", *lines(), "// clang-format on"])) if table else lines
        return lines

    return register


def wrapped(lines: Lines, indent: int) -> str:
    """The text of a section: a comment is beside what it is about, in C as clang-format aligns it, or above it if it is long."""
    out: list[str] = []
    beside: list[tuple[str, str]] = []  # lines with comments in one column
    comment = mark = ""

    def flush() -> None:
        column = max((len(line) for line, _ in beside), default=0)
        out.extend(f"{line:{column}}  {text}" for line, text in beside)
        beside.clear()

    for line in lines:
        if line.startswith("<"):
            mark, comment = line[1:].split(">", 1)
            continue
        text = f"{mark.replace('///', '///<')} {comment}"
        if not comment:
            flush()
            out.append(line)
        elif indent + len(line) + 2 + len(text) <= COLUMNS:
            together = [*beside, (line, text)]
            if mark == "#:" or indent + max(len(line) for line, _ in together) + 2 + max(len(text) for _, text in together) > COLUMNS:
                flush()
            beside.append((line, text))
        else:
            flush()
            width = COLUMNS - indent - len(mark) - 1
            out += [f"{mark} {part}" for part in textwrap.wrap(comment, width, break_long_words=False, break_on_hyphens=False)]
            out.append(line)
        comment = ""
    flush()
    return "".join((" " * indent + line).rstrip() + "\n" for line in out)


def quoted(text: object) -> str:
    return "nullptr" if text is None else '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def doc(row: Row, mark: str, *keys: str) -> Lines:
    if text := next((row[key] for key in (*keys, "doc") if key in row), None):
        yield f"<{mark}>{text}"


# A record in each language


def cpp_members(record: str, struct: str) -> Lines:
    for row in SCHEMA[record].values():
        if "kind" in row and row["cpp"] and struct in row.get("in", struct).split(", "):
            yield from doc(row, "///")
            default = row.get("default", "")
            value = default if default.startswith("{") else f" = {default}" if default else ""
            yield f"{row['cpp_type']} {row['cpp']}{value};"


def in_c(record: str) -> list[tuple[str, Row]]:
    """The fields that C has, by their name there, in its order."""
    return sorted(((row["c_name"], row) for row in SCHEMA[record].values() if "c" in row), key=lambda named: named[1]["c"])


def c_members(record: str) -> Lines:
    for name, row in in_c(record):
        yield from doc(row, "///", "c_doc")
        yield row["c_type"].format(name) + ";" if "{}" in row["c_type"] else f"{row['c_type']} {name};"
        if "count" in row:
            yield f"size_t {row['count']};"
        if "user" in row:
            yield f"void* {name}_user;"


def in_python(record: str) -> list[tuple[str, Row]]:
    return sorted((item for item in SCHEMA[record].items() if "py" in item[1]), key=lambda named: named[1].get("py_place", 0))


def python_fields(record: str) -> Lines:
    """The fields and, of what the library makes, how they are read."""
    for name, row in in_python(record):
        yield from doc(row, "#:", *(("py_doc",) if row["kind"] == "flag" else ("py_doc", "c_doc")))
        yield f"{name}: {row['py']}" + (f" = {row['py_default']}" if "py_default" in row else "")
    at = SCHEMA["records"][record]
    if "read" in at:
        yield from ("", "@staticmethod", f"def from_c(c: _library.{python_name(at['c'])}) -> {at['python']}:")
        yield f"    return {at['python']}("
        for name, row in in_python(record):
            yield f"        {name}={row['from_c'].format(row['c_name'], row.get('count'))},"
        yield "    )"


def view(record: str) -> Lines:
    """Sets the members of C's struct that are one member of C++'s."""
    for name, row in in_c(record):
        if "view" in row:
            yield f"view.{name} = {row['view'].format(record + '.' + str(row['cpp']))};"


PYTHON, CPP = "src/bindings/python/cukiln", "include/cukiln"
for _record, _at in SCHEMA["records"].items():
    for _struct, _file in _at["cpp"].items():
        section(f"{CPP}/{_file}.hpp", _struct)(lambda record=_record, struct=_struct: cpp_members(record, struct))
    if "c" in _at:
        section(f"{CPP}/cukiln.h", _at["c"])(lambda record=_record: c_members(record))
    if "python" in _at:
        section(f"{PYTHON}/_spec.py", _at["python"])(lambda record=_record: python_fields(record))
    if "view" in _at:
        section(f"src/bindings/c/{_at['view']}.cpp", f"{_record} to C")(lambda record=_record: view(record))


# The C interface in the words of ctypes, from the headers

C_TYPES = {f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (32, 64)}
C_TYPES |= {"char": "c_char", "int": "c_int", "size_t": "c_size_t", "double": "c_double"}
C_DECLARATION = re.compile(
    r"typedef enum (?P<enum>\w+)|typedef struct (?P<struct>\w+) \{(?P<members>.*?)\n\}|"
    r"(?:CUKILN_API|typedef) (?P<result>[^;{]*?[ *])\(?\*?(?P<function>\w+)\)?\((?P<parameters>[^{;]*)\);",
    re.DOTALL,
)  # fmt: skip
C_TYPE = re.compile(r"(?:const |struct )*(?P<name>\w+)(?P<stars>(?: const\b|\*)*) ?(?P<of>\w*)(?:\[(?P<count>\d+)\])?")


def python_name(name: str) -> str:
    return re.sub("^cukiln_(nvfp4_)?", "", name).title().replace("_", "")


def c_type(declaration: re.Match[str], known: dict[str, str]) -> str:
    """The type of `const char* name[2]`; a pointer to what ctypes does not know is c_void_p."""
    name, stars, _, count = declaration.groups()
    text = name == "char" and "*" in stars
    levels = stars.count("*") - text if name in known else 0
    element = "None" if name == "void" and not stars else "c_char_p" if text else known.get(name, "c_void_p")
    return "POINTER(" * levels + element + ")" * levels + (f" * {count}" if count else "")


def c_interface(header: str, known: dict[str, str], library: str = "") -> Lines:
    """Of a header, and adds its types to those that are known to ctypes."""
    prototypes = []
    text = (ROOT / CPP / header).read_text(encoding="utf-8")
    for found in C_DECLARATION.finditer(re.sub("//.*", "", text)):
        declared = [" ".join(one.split()) for one in re.split("[;,]", found["members"] or found["parameters"] or "")]
        parts = [C_TYPE.fullmatch(one) for one in declared if one not in ("", "void")]
        types = [c_type(part, known) for part in parts]
        if name := found["struct"]:
            known[name] = python_name(name)
            yield f"class {known[name]}({library + 'Sized' if parts[0]['of'] == 'struct_bytes' else 'ctypes.Structure'}):"
            yield "    _fields_ = ("
            yield from (f'        ("{part["of"]}", {kind}),' for part, kind in zip(parts, types, strict=True))
            yield from ("    )", "", "")
        elif name := found["enum"]:
            known[name] = "c_int"
        else:
            name, result = found["function"], c_type(C_TYPE.fullmatch(found["result"].strip()), known)
            if name.endswith("_function"):
                known[name] = name.removeprefix("cukiln_").upper()
                yield from (f"{known[name]} = ctypes.CFUNCTYPE({', '.join([result, *types])})", "", "")
            else:
                prototypes.append(f'    "{name}": ({result}, [{", ".join(types)}]),')
    yield from ("_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {", *prototypes, "}")


section(f"{PYTHON}/_library.py", "C interface")(lambda: c_interface("cukiln.h", dict(C_TYPES)))


@section(f"{PYTHON}/_shipped.py", "C interface")
def _() -> Lines:
    known = dict(C_TYPES)
    list(c_interface("cukiln.h", known))  # what _library.py has
    known = {name: kind if kind.startswith("c_") else f"_library.{kind}" for name, kind in known.items()}
    return c_interface("nvfp4/nvfp4.h", known, "_library.")


# Stats, and the reasons of a miss


def reasons() -> dict[str, str]:
    return {name: row["reason"] for name, row in SCHEMA["stats"].items() if "reason" in row}


@section("src/core/loader/stats_fields.hpp", "stats", table=True)
def _() -> Lines:
    for row in SCHEMA["stats"].values():
        reason = row.get("reason")
        label = reason.replace("_", " ") if reason else row.get("label")
        by = "loader" if reason else row.get("by", "other")
        shown = f"{quoted(reason)}, {quoted(row.get('json'))}, {quoted(label)}, Unit::{row.get('unit', 'count')}"
        yield f'{{"{row["cpp"]}", &Stats::{row["cpp"]}, CountedBy::{by}, {shown}, {quoted(row.get("note", ""))}}},'


@section("src/core/loader/miss.hpp", "Why")
def _() -> Lines:
    for name, row in SCHEMA["miss"].items():
        yield from doc(row, "///")
        yield f"{name},"


@section("src/core/loader/miss.cpp", "miss", table=True)
def _() -> Lines:
    for row in SCHEMA["miss"].values():
        yield f"{{&Stats::{row['counts']}, {quoted(row['text'])}, {quoted(row.get('entry', 'damaged'))}, {quoted(row['advice'])}}},"


@section("src/addons/daemon/ops/metrics_text.cpp", "counters of Stats", table=True)
def _() -> Lines:
    for place, (name, reason) in enumerate(reasons().items()):
        help_text = "" if place else "Misses of all processes that use the store, by reason."
        yield f'{{"{name}", "misses_total", R"(reason="{reason}")", {quoted(help_text)}}},'
    for name, row in SCHEMA["stats"].items():
        if "metric" in row:
            yield f'{{"{name}", "{row["metric"]}", "", {quoted(row["help"])}}},'


@section("src/cli/README.md", "stats")
def _() -> Lines:
    names = [row["json"] for row in SCHEMA["stats"].values() if "json" in row]
    names.insert(names.index("misses") + 1, "misses_by_reason")
    yield "`" + "`, `".join(names) + "`"


@section("examples/operations/watching.md", "reasons")
@section("src/cli/README.md", "reasons")
def _() -> Lines:
    yield "`" + "`, `".join(reasons().values()) + "`"


def member(row: Row) -> str:
    """The member of a Settings."""
    within = {"StoreOptions": "store.", "LoaderOptions": "loader.", "CudaPlaces": "loader.cuda_places.", "RemoteSettings": "remote."}
    return within.get(row.get("in", ""), "") + row["cpp"]


def sets(record: str) -> Lines:
    for name, row in SCHEMA[record].items():
        if "c" not in row or not row["cpp"] or "by_hand" in row:
            continue
        out, value = f"to.{member(row)}", f"from.{row['c_name']}"
        if "count" in row or row["kind"] in ("daemon", "link"):
            more = f', from.{row["count"]}, "{name}"' if "count" in row else ""
            yield f"if (auto ok = set({out}, {value}{more}); !ok) return ok;"
        else:
            yield f"{row.get('set', 'set')}({out}, {value});"
        if row["kind"] == "limit":
            yield f"if ({value} == UINT64_MAX) {out} = 0;"


for _record in ("options", "module", "preload_options", "watch_options"):
    section("src/bindings/c/convert.cpp", _record, table=True)(lambda record=_record: sets(record))


@section("src/cli/module_report.cpp", "report", table=True)
def _() -> Lines:
    for row in SCHEMA["report"].values():
        if "to_json" in row:
            yield f'{{"{row["c_name"]}", {row["to_json"].format("module." + row["cpp"])}}},'


PARAMETERS = [(name, row) for name, row in SCHEMA["options"].items() if "argument" in row and row["cpp"]]
section(f"{PYTHON}/_loader.py", "parameters")(lambda: (f"{name}: {row['argument']}," for name, row in PARAMETERS))


def to_c(rows: list[tuple[str, Row]], owner: str) -> Lines:
    """The arguments with which Python makes C's struct."""
    for name, row in rows:
        value = row.get("py_value", owner + name).format(owner + name)
        if "count" in row:
            yield f'**{row.get("listed", "listed")}("{name}", "{row["count"]}", {value}),'
        else:
            yield f"{row['c_name']}={row['to_c'].format(name, value)},"


section(f"{PYTHON}/_loader.py", "options")(lambda: to_c(PARAMETERS, ""))
section(f"{PYTHON}/_spec.py", "module to C")(lambda: to_c(in_c("module"), "self."))


def settings() -> Iterator[tuple[str, Row]]:
    """By the key in config.toml."""
    for name, row in [*SCHEMA["options"].items(), *SCHEMA["settings"].items()]:
        if "means" in row:
            yield row.get("setting", name), row


@section("src/core/loader/settings.cpp", "settings", table=True)
def _() -> Lines:
    for key, row in settings():
        if "kind" in row:
            yield f'key<{row["read"]}>("{key}", [](auto& s) -> auto& {{ return s.{member(row)}; }}),'


@section("src/core/loader/settings.cpp", "variables", table=True)
def _() -> Lines:
    yield f"constexpr std::string_view kOtherVariables[] = {{{', '.join(map(quoted, SCHEMA['variables']))}}};"


@section("src/addons/daemon/main/live_settings.cpp", "reload", table=True)
def _() -> Lines:
    for reload, constant in (("live", "kLive"), ("never", "kNotOfDaemons")):
        keys = ", ".join(f'"{key}"' for key, row in settings() if row.get("reload") == reload)
        yield f"constexpr std::string_view {constant}[] = {{{keys}}};"


@section("src/cli/README.md", "settings")
def _() -> Lines:
    yield from ("| variable | means | default |", "|---|---|---|")
    for key, row in settings():
        yield f"| `CUKILN_{key.upper()}` | {row['means']} | " + (f"{row['unset']} |" if "unset" in row else "|")


def mdoc(text: str) -> Lines:
    """A page's text as mdoc: `literals` are lines of their own, with the punctuation that follows."""
    parts = re.split(r"`([^`]+)`([:;,.]*)", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
    for plain, literal, mark in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if plain.strip():
            yield plain.strip()
        if literal:
            yield f".Li \\&{literal} {' '.join(mark)}".rstrip()


@section("src/cli/man/cukiln.1.in", "settings")
def _() -> Lines:
    for key, row in settings():
        if "kind" in row:
            yield f".It Ev CUKILN_{key.upper()}"
            yield from mdoc(row["means"][0].upper() + row["means"][1:] + (f"; default: {row['unset']}." if "unset" in row else "."))


def written(file: str, match: re.Match[str]) -> str:
    """A section as the schema has it."""
    if match["name"]:
        return match["begin"] + wrapped(SECTIONS[file, match["name"]](), len(match["indent"])) + match["end"]
    first, *more = SECTIONS[file, match["page"]]()
    return match["left"] + ("\n".join(["", first, *more, ""]) if more else first) + match["right"]


def run(check: bool) -> Lines:
    for file in sorted({file for file, _ in SECTIONS}):
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        known = {name for there, name in SECTIONS if there == file}
        found = {match["name"] or match["page"] for match in SECTION.finditer(text)}
        if found != known:
            yield f"{file}: has the sections {sorted(found)}; expected {sorted(known)}"
            continue
        now = SECTION.sub(lambda match, file=file: written(file, match), text)
        if now != text and check:
            yield f"{file}: a section differs from src/schema/schema.toml; run src/schema/generate.py"
        elif now != text:
            path.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if a section differs")
    sys.exit("\n".join(run(arguments.parse_args().check)) or 0)
