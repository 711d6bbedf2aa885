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
KINDS = SCHEMA["kinds"]
for _record, _at in SCHEMA["records"].items():
    for _place, (_name, _row) in enumerate(SCHEMA[_record].items() if "kind" in _at else ()):  # one order everywhere
        SCHEMA[_record][_name] = {"kind": _at["kind"], "c": _place} | _row
SECTIONS: dict[tuple[str, str], Callable[[], Lines]] = {}  # by file and name

_COMMENT = r"(?://|#|\.\\\")"
SECTION = re.compile(
    rf"(?P<begin>^(?P<indent> *){_COMMENT} schema: (?P<name>[\w ]+\w)[^\n]*\n).*?(?P<end>^ *{_COMMENT} end of schema)"
    r"|(?P<left><!-- schema: (?P<page>[\w ]+\w) -->).*?(?P<right><!-- end of schema -->)",
    re.MULTILINE | re.DOTALL,
)


def section(file: str, name: str) -> Callable[[Callable[[], Lines]], Callable[[], Lines]]:
    """Registers a function that gives a section's lines; `<///>TEXT` is the comment of the next one."""

    def register(lines: Callable[[], Lines]) -> Callable[[], Lines]:
        SECTIONS[file, name] = lines
        return lines

    return register


def above(mark: str, text: str, columns: int) -> list[str]:
    """A comment on lines of its own."""
    return [mark + line for line in textwrap.wrap(text, columns - len(mark), break_long_words=False, break_on_hyphens=False)]


def wrapped(lines: Lines, indent: int) -> str:
    """The text of a section: a comment is beside what it is about, as clang-format aligns it, or above it if it is long."""
    out: list[str] = []
    beside: list[tuple[str, str]] = []  # lines with comments in one column
    comment = ""

    def flush() -> None:
        column = max((len(line) for line, _ in beside), default=0)
        out.extend(f"{line:{column}}  {text}" for line, text in beside)
        beside.clear()

    for line in lines:
        if line.startswith("<///>"):
            comment = line.removeprefix("<///>")
            continue
        text = f"///< {comment}"
        if not comment:
            flush()
            out.append(line)
        elif indent + len(line) + 2 + len(text) <= COLUMNS:
            together = [*beside, (line, text)]
            if indent + max(len(line) for line, _ in together) + 2 + max(len(text) for _, text in together) > COLUMNS:
                flush()
            beside.append((line, text))
        else:
            flush()
            out += [*above("/// ", comment, COLUMNS - indent), line]
        comment = ""
    flush()
    return "".join(" " * indent + line + "\n" for line in out)


def table(rows: Lines) -> Lines:
    """Rows of C++ that are longer than a line of code is."""
    yield "// clang-format off"
    yield from rows
    yield "// clang-format on"


def quoted(text: object) -> str:
    return "nullptr" if text is None else '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def doc(row: Row, mark: str, *keys: str) -> Lines:
    if text := next((row[key] for key in (*keys, "doc") if key in row), None):
        yield f"<{mark}>{text}"


# A record in each language


def kind(row: Row) -> Row:
    return KINDS[row["kind"]]


def cpp_members(record: str, struct: str) -> Lines:
    for name, row in SCHEMA[record].items():
        if "kind" in row and row.get("cpp") is not False and struct in row.get("in", struct).split(", "):
            yield from doc(row, "///")
            default = row.get("default", kind(row).get("default", ""))
            value = default if default.startswith("{") else f" = {default}" if default else ""
            yield f"{kind(row)['cpp']} {row.get('cpp', name)}{value};"


def in_c(record: str) -> list[tuple[str, Row]]:
    """The fields that C has, by their name there, in its order."""
    rows = [(row.get("c_name", name), row) for name, row in SCHEMA[record].items() if "c" in row]
    if len({row["c"] for _, row in rows}) != len(rows):
        sys.exit(f"{record}: two fields have one place in C")
    return sorted(rows, key=lambda named: named[1]["c"])


def c_members(record: str) -> Lines:
    for name, row in in_c(record):
        yield from doc(row, "///", "c_doc")
        yield kind(row)["c"].format(name) + ";" if "{}" in kind(row)["c"] else f"{kind(row)['c']} {name};"
        if "count" in row:
            yield f"size_t {row['count']};"
        if "user" in kind(row):
            yield f"void* {name}_user;"


def ctypes_fields(record: str) -> Lines:
    for name, row in in_c(record):
        yield f'("{name}", {kind(row)["ctypes"]}),'
        if "count" in row:
            yield f'("{row["count"]}", c_size_t),'
        if "user" in kind(row):
            yield f'("{name}_user", c_void_p),'


def in_python(record: str) -> list[tuple[str, Row]]:
    rows = [(name, row) for name, row in SCHEMA[record].items() if "py" in row or "py" in kind(row)]
    return sorted(rows, key=lambda named: named[1].get("py_place", 0))


def python_fields(record: str) -> Lines:
    for name, row in in_python(record):
        line = f"{name}: {row.get('py', kind(row).get('py'))}" + (f" = {row['py_default']}" if "py_default" in row else "")
        keys = ("py_doc",) if row["kind"] == "flag" else ("py_doc", "c_doc")
        comment = "".join(doc(row, "#:", *keys)).removeprefix("<#:>")
        if len(line) + len(comment) + 9 > COLUMNS:
            yield from above("#: ", comment, COLUMNS - 4)
            yield line
        else:
            yield line + (f"  #: {comment}" if comment else "")


def from_c(record: str) -> Lines:
    for name, row in in_python(record):
        value = row.get("from_c", kind(row)["from_c"])
        yield f"{name}={value.format(row.get('c_name', name), row.get('count'))},"


def view(record: str) -> Lines:
    """Sets the members of C's struct that are one member of C++'s."""
    for name, row in in_c(record):
        if "view" in kind(row):
            yield f"view.{name} = {kind(row)['view'].format(record + '.' + row.get('cpp', name))};"


PYTHON, CPP = "src/bindings/python/cukiln", "include/cukiln"
for _record, _at in SCHEMA["records"].items():
    for _struct, _file in _at["cpp"].items():
        section(f"{CPP}/{_file}.hpp", _struct)(lambda record=_record, struct=_struct: cpp_members(record, struct))
    if "c" in _at:
        section(f"{CPP}/cukiln.h", _at["c"])(lambda record=_record: c_members(record))
        section(f"{PYTHON}/_library.py", _at["c"])(lambda record=_record: ctypes_fields(record))
    if "python" in _at:
        section(f"{PYTHON}/_spec.py", _at["python"])(lambda record=_record: python_fields(record))
    if "read" in _at:
        section(f"{PYTHON}/_spec.py", f"{_record} from C")(lambda record=_record: from_c(record))
    if "view" in _at:
        section(f"src/bindings/c/{_at['view']}.cpp", f"{_record} to C")(lambda record=_record: view(record))


# Stats, and the reasons of a miss


def reasons() -> Iterator[tuple[str, str]]:
    yield from ((name, row["reason"]) for name, row in SCHEMA["stats"].items() if "reason" in row)


@section("src/core/loader/stats_fields.hpp", "stats")
def _() -> Lines:
    def rows() -> Lines:
        for name, row in SCHEMA["stats"].items():
            reason = row.get("reason")
            label = reason.replace("_", " ") if reason else row.get("label")
            by = "loader" if reason else row.get("by", "other")
            shown = f"{quoted(reason)}, {quoted(row.get('json'))}, {quoted(label)}, Unit::{row.get('unit', 'count')}"
            member = row.get("cpp", name)
            yield f'{{"{member}", &Stats::{member}, CountedBy::{by}, {shown}, {quoted(row.get("note", ""))}}},'

    yield from table(rows())


@section("src/core/loader/miss.hpp", "Why")
def _() -> Lines:
    for name, row in SCHEMA["miss"].items():
        yield from doc(row, "///")
        yield f"{name},"


@section("src/core/loader/miss.cpp", "miss")
def _() -> Lines:
    rows = SCHEMA["miss"].values()
    yield from table(f"{{&Stats::{row['counts']}, {quoted(row['text'])}, {quoted(row.get('entry', 'damaged'))}}}," for row in rows)


@section("src/addons/daemon/ops/metrics_text.cpp", "counters of Stats")
def _() -> Lines:
    def rows() -> Lines:
        help_text = "Misses of all processes that use the store, by reason."
        for name, reason in reasons():
            yield f'{{"{name}", "misses_total", R"(reason="{reason}")", {quoted(help_text)}}},'
            help_text = ""
        for name, row in SCHEMA["stats"].items():
            if "metric" in row:
                yield f'{{"{name}", "{row["metric"]}", "", {quoted(row["help"])}}},'

    yield from table(rows())


@section("src/cli/README.md", "stats")
def _() -> Lines:
    names = [row["json"] for row in SCHEMA["stats"].values() if "json" in row]
    names.insert(names.index("misses") + 1, "misses_by_reason")
    yield code(names)


@section("examples/operations/watching.md", "reasons")
@section("src/cli/README.md", "reasons")
def _() -> Lines:
    yield code([reason for _, reason in reasons()])


# Options and settings


def member(name: str, row: Row) -> str:
    """The member of a Settings."""
    within = {"StoreOptions": "store.", "LoaderOptions": "loader.", "CudaPlaces": "loader.cuda_places.", "RemoteSettings": "remote."}
    return within.get(row.get("in", ""), "") + row.get("cpp", name)


def sets(record: str) -> Lines:
    for name, row in SCHEMA[record].items():
        if "c" not in row or row.get("cpp") is False or "by_hand" in kind(row):
            continue
        out, value = f"to.{member(name, row)}", f"from.{row.get('c_name', name)}"
        if "count" in row or row["kind"] in ("daemon", "link"):
            more = f', from.{row["count"]}, "{name}"' if "count" in row else ""
            yield f"if (auto ok = set({out}, {value}{more}); !ok) return ok;"
        else:
            yield f"{row.get('set', 'set')}({out}, {value});"
        if row["kind"] == "limit":
            yield f"if ({value} == UINT64_MAX) {out} = 0;"


for _record in ("options", "module", "preload_options"):
    section("src/bindings/c/convert.cpp", _record)(lambda record=_record: table(sets(record)))


@section("src/cli/module_report.cpp", "report")
def _() -> Lines:
    rows = [(row, row.get("c_name", name), row.get("cpp", name)) for name, row in SCHEMA["report"].items()]
    shown = [(name, row.get("json", kind(row).get("json", "")).format(f"module.{cpp}")) for row, name, cpp in rows]
    yield from table(f'{{"{name}", {value}}},' for name, value in shown if value)


PARAMETERS = [(name, row) for name, row in SCHEMA["options"].items() if "argument" in kind(row) and row.get("cpp") is not False]


@section(f"{PYTHON}/_loader.py", "parameters")
def _() -> Lines:
    yield from (f"{name}: {kind(row)['argument']}," for name, row in PARAMETERS)


def to_c(rows: list[tuple[str, Row]], owner: str) -> Lines:
    """The arguments with which Python makes C's struct."""
    for name, row in rows:
        value = row.get("py_value", owner + name).format(owner + name)
        if "count" in row:
            yield f'**{kind(row).get("listed", "listed")}("{name}", "{row["count"]}", {value}),'
        else:
            yield f"{row.get('c_name', name)}={row.get('to_c', kind(row).get('to_c')).format(name, value)},"


section(f"{PYTHON}/_loader.py", "options")(lambda: to_c(PARAMETERS, ""))
section(f"{PYTHON}/_spec.py", "module to C")(lambda: to_c(in_c("module"), "self."))


def settings() -> Iterator[tuple[str, str, Row]]:
    """The key, its field's name, and the row."""
    for name, row in [*SCHEMA["options"].items(), *SCHEMA["settings"].items()]:
        if "means" in row:
            yield row.get("setting", name), name, row


@section("src/core/loader/settings.cpp", "settings")
def _() -> Lines:
    yield from table(
        f'key<{row.get("read", kind(row).get("read"))}>("{key}", [](auto& s) -> auto& {{ return s.{member(name, row)}; }}),'
        for key, name, row in settings() if "kind" in row)  # fmt: skip


@section("src/addons/daemon/main/live_settings.cpp", "reload")
def _() -> Lines:
    for reload, constant in (("live", "kLive"), ("never", "kNotOfDaemons")):
        keys = ", ".join(f'"{key}"' for key, _, row in settings() if row.get("reload") == reload)
        yield from table(iter([f"constexpr std::string_view {constant}[] = {{{keys}}};"]))


@section("src/cli/README.md", "settings")
def _() -> Lines:
    yield "| variable | means | default |"
    yield "|---|---|---|"
    for key, _, row in settings():
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
    for key, _, row in settings():
        if "kind" in row:
            yield f".It Ev CUKILN_{key.upper()}"
            yield from mdoc(row["means"][0].upper() + row["means"][1:] + (f"; default: {row['unset']}." if "unset" in row else "."))


# The files


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


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if a section differs")
    failures = list(run(arguments.parse_args().check))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
