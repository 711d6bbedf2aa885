#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of measurements in the documents below from the runs in tests/gpu/results.

  tests/bench/tables.py           rewrites the tables
  tests/bench/tables.py --check   writes nothing; exit 1 and a diff if a table is not what it would write

A table stands below the line `<!-- table: NAME, of tests/bench/tables.py -->` and an empty line. The ratio is the time of what
stands beside cukiln, divided by cukiln's: above 1, cukiln takes less. Every result of KERNELS has to be in a table, so that none is
left out for being worse.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from results import REPOSITORY, read

DOCUMENTS = ("README.md", "tests/bench/README.md", "kernels_src/nvfp4/gemm.md", "kernels_src/nvfp4/moe.md",
             "kernels_src/nvfp4/quantize.md", "kernels_src/sampling/sampler.md")  # fmt: skip
KERNELS = "h100-80gb-hbm3-kernels"  # by scripts/bench-gpu --all
MARK = re.compile(r"<!-- table: ([a-z-]+), of tests/bench/tables\.py -->")
HEADER = ("| measured | cukiln | beside it | ratio |", "|---|---|---|---|")


@dataclass
class Line:
    """A line of a table: one result, or one for each case, of a run; `beside`: the baseline's name begins so."""

    label: str
    run: str  # h200-bench.json without its ending
    what: str
    cases: tuple[str, ...] = ("",)
    beside: str = ""


@dataclass
class Grid:
    """A table of all results whose kernel begins with one of `what`, beside the baseline that begins with `beside`: a line for each
    kernel and each `row` of the case, a column for each `column` of it; the time and the ratio in each cell, or the ratio alone."""

    what: tuple[str, ...]
    case: re.Pattern[str]
    beside: str
    columns: str  # what their numbers are
    run: str = KERNELS
    times: bool = True


GEMM = "m {}, n 7168, k 7168"
MOE = "{} tokens, top 8 of 256, 7168 x 2048"


def gemm(what: str, *rows: int) -> Line:
    name, _, rest = what.partition(", ")
    label = f"`{name}`, {rest + ', ' if rest else ''}n = k = 7168, {', '.join(map(str, rows))} rows"
    return Line(label, KERNELS, what, tuple(GEMM.format(m) for m in rows))


def w4a16(beside: str) -> Grid:
    return Grid(("w4a16_gemm",), re.compile(r"m (?P<column>\d+), (?P<row>.*)"), beside, "m", "h200-w4a16", times=False)


def moe(what: str, *tokens: int) -> Line:
    label = f"`{what}`, {', '.join(f'{count:,}' for count in tokens)} tokens, top 8 of 256 experts, 7168 x 2048"
    return Line(label, KERNELS, what, tuple(MOE.format(count) for count in tokens))


def sampler(setting: str, logits: str, beside: str) -> Line:
    """Of both kinds of logits: `logits` is empty, or `, Zipf`."""
    rows = (1, 8, 64, 256)
    cases = tuple(f"{count} rows of 128256{logits}" for count in rows)
    return Line(f"{setting}{logits}", KERNELS, f"sampler, {setting}", cases, beside)


def decode(mode: str) -> Line:
    batches = (1, 8, 16, 64)
    label = f"{mode}, {', '.join(map(str, batches))} sequences"
    return Line(label, KERNELS, "decode step", tuple(f"{mode}, batch {batch}" for batch in batches))


WARM_START = "warm start, per program of 6, {}"
TABLES = {
    "summary": [
        Line("a kernel ready in a fresh process, from a warm cache", "h200-bench", WARM_START.format("loaded"),
             beside="cupy"),
        Line("the same", "h200-rivals", WARM_START.format("loaded"), beside="triton"),
        Line("a launch from C++", "h200-bench", "TypedKernel::launch"),
        Line("a cold start of 16 modules", "h200-bench", "cold start, the 16 shipped modules on 16 cores"),
        Line("`nvrtcCompileProgram` of a program that uses CUB, compiled before", "h200-dropin",
             "CUB's BlockReduce, a hit through the drop-in", beside="NVRTC alone"),
        gemm("w4a16_gemm", 8, 64, 1024),
        moe("nvfp4_moe_w4a16", 16, 256, 1024),
    ],
    "rivals": [
        Line("`RawModule`, loaded", "h200-bench", WARM_START.format("loaded"), beside="cupy"),
        Line("a Triton kernel, loaded and launched once", "h200-rivals", WARM_START.format("loaded"), beside="triton"),
        Line("`cpp_extension.load`, nothing changed", "h200-rivals", WARM_START.format("loaded"),
             beside="cpp_extension"),
        Line("`FileStreamProgramCache`, which returns bytes and checks no headers; CPU time", "h200-bench",
             WARM_START.format("bytes, CPU time"), beside="cuda.core"),
    ],
    "cukiln": [
        Line("a launch by `TypedKernel`", "h200-bench", "TypedKernel::launch"),
        Line("a launch by `Kernel`", "h200-bench", "Kernel::launch"),
        Line("a launch by C", "h200-bench", "cukiln_kernel_launch"),
        Line("a warm start of 6 modules whose headers are verified, without the driver's calls; CPU time",
             "h200-bench", "warm start, 6 modules that include toolkit headers"),
        Line("each further module of it", "h200-bench", "each further module, its headers verified"),
        Line("each further module of it, among 100,000 entries", "h200-bench",
             "a further module of a warm start among 100,000 entries"),
        Line("compiles, when 64 processes start 16 modules together on an empty store", "h200-bench",
             "compiles by 64 processes of 16 modules each"),
        Line("a cold start of 16 modules on 16 cores", "h200-bench", "cold start, the 16 shipped modules on 16 cores"),
    ],
    "dropin": [
        *(Line(f"{label}, {part}", "h200-dropin", f"{what}, {part} through the drop-in", beside="NVRTC alone")
          for label, what in (("three lines", "a kernel without headers"), ("CUB's `BlockReduce`", "CUB's BlockReduce"))
          for part in ("a miss", "a hit")),
        Line("three lines, a hit", "h200-dropin", "a kernel without headers, a hit through the drop-in",
             beside="NVRTC with its own cache"),
        Line("CUB's `BlockReduce`, a hit that checks 1,281 paths", "h200-dropin",
             "CUB's BlockReduce, a hit that checks 1,281 paths"),
    ],
    "sampler": [
        *(sampler(setting, logits, "FlashInfer")
          for setting in ("top-k, top-p", "top-k, top-p, joint", "top-p", "min-p", "no filter")
          for logits in ("", ", Zipf")),
        *(sampler("greedy", logits, "torch.argmax") for logits in ("", ", Zipf")),
        *(sampler(setting, logits, "a copy") for setting in ("no filter", "greedy") for logits in ("", ", Zipf")),
        *(Line(f"`top_log_probabilities`, 20 of a row{logits}", KERNELS, "top_log_probabilities, 20",
               tuple(f"{rows} rows of 128256{logits}" for rows in (1, 8, 64, 256))) for logits in ("", ", Zipf")),
    ],
    "gemm": Grid(("nvfp4_gemm", "w4a16_gemm"), re.compile(r"m (?P<column>\d+), (?P<row>.*)"), "cuBLAS", "m"),
    "cublas": w4a16("cuBLAS"),
    "humming": w4a16("Humming"),
    "moe": Grid(("nvfp4_moe",), re.compile(r"(?P<column>\d+) tokens, (?P<row>.*)"), "torch._grouped_mm", "tokens"),
    "amax": Grid(("amax_gsa",), re.compile(r"\[(?P<column>\d+), (?P<row>\d+)\]"), "torch.aminmax", "rows"),
    "quantize": Grid(("quantize_nvfp4",), re.compile(r"\[(?P<column>\d+), (?P<row>\d+)\]"), "torch.compile", "rows"),
    "quantize-copy": Grid(("amax_gsa", "quantize_nvfp4", "deinterleave", "swiglu"),
                          re.compile(r"\[(?P<column>\d+), (?P<row>.*)"), "a copy", "rows"),
    "decode": [decode("reduce-overhead"), decode("eager")],
    "python": [
        Line("`get_cuda_module` of a loaded module, every header checked", "h200-modules",
             "get_cuda_module of a module that is loaded, every header checked"),
        Line("a launch from Python", "h200-modules", "a launch", beside="CuPy"),
        Line("a launch from Python", "h200-modules", "a launch", beside="Triton"),
    ],
}  # fmt: skip


def number(value: float, unit: str) -> str:
    """Three significant digits, all digits before the point; a count without a point."""
    if value >= 100 or (not unit and value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quantity(values: list[float], unit: str) -> str:
    """`9.48, 160 µs`; milliseconds from 10,000 µs on."""
    if unit == "us" and min(values) >= 10_000:
        values, unit = [value / 1000 for value in values], "ms"
    return f"{', '.join(number(value, unit) for value in values)} {unit.replace('us', 'µs')}".strip()


class Tables:
    def __init__(self, folder: Path):
        self.folder = folder
        self.runs: dict[str, list[dict]] = {}
        self.shown: set[int] = set()  # id() of results of KERNELS

    def results(self, run: str) -> list[dict]:
        if run not in self.runs:
            self.runs[run] = read(self.folder / f"{run}.json")["results"]
        return self.runs[run]

    def find(self, line: Line, case: str) -> dict:
        """The result that a line names. Raises LookupError."""
        for row in self.results(line.run):
            if (row["what"], row.get("case", "")) == (line.what, case) and row["baseline"]["name"].startswith(line.beside):
                self.shown.add(id(row))
                return row
        raise LookupError(f"{line.run}.json has no result '{line.what}', case '{case}', beside '{line.beside}'")

    def text(self, line: Line) -> str:
        rows = [self.find(line, case) for case in line.cases]
        unit, name = rows[0]["unit"], rows[0]["baseline"]["name"]
        beside = [row["baseline"]["value"] for row in rows]
        baseline = name if name.startswith("goal: ") else f"{quantity(beside, unit)}, {name}"
        ratios = quantity([row["ratio"] for row in rows], "×")
        return f"| {line.label} | {quantity([row['value'] for row in rows], unit)} | {baseline} | {ratios} |"

    def grid(self, grid: Grid) -> list[str]:
        cells: dict[tuple[str, str], dict[int, str]] = {}
        for row in self.results(grid.run):
            case = grid.case.fullmatch(row.get("case", ""))
            if case and row["what"].startswith(grid.what) and row["baseline"]["name"].startswith(grid.beside):
                self.shown.add(id(row))
                line = cells.setdefault((row["what"], case["row"].rstrip("]").replace("], ", ", ")), {})
                ratio = quantity([row["ratio"]], "×" if grid.times else "")
                line[int(case["column"])] = f"{quantity([row['value']], row['unit'])}, {ratio}" if grid.times else ratio
        if not cells:
            raise LookupError(f"{grid.run}.json has no result of {', '.join(grid.what)} beside '{grid.beside}'")
        columns = sorted({column for line in cells.values() for column in line})
        of = ["kernel", "of"] if grid.times else ["of"]  # a table of ratios has one kernel
        return [f"| {' | '.join(of)} | {grid.columns} {' | '.join(map(str, columns))} |", "|---" * (len(columns) + len(of)) + "|",
                *(f"| {f'`{kernel}` | ' if grid.times else ''}{row} | {' | '.join(line.get(column, '') for column in columns)} |"
                  for (kernel, row), line in cells.items())]  # fmt: skip

    def table(self, name: str) -> list[str]:
        if name not in TABLES:
            raise LookupError(f"no table '{name}': expected {', '.join(TABLES)}")
        of = TABLES[name]
        if isinstance(of, Grid):
            return self.grid(of)
        return [*HEADER, *map(self.text, of)]

    def rewrite(self, text: str) -> str:
        """The document with its tables written anew. Raises LookupError."""
        lines, out = text.split("\n"), []
        at = 0
        while at < len(lines):
            out.append(lines[at])
            mark = MARK.fullmatch(lines[at])
            at += 1
            if mark:
                out += ["", *self.table(mark[1])]
                at += 1  # the empty line that ends the comment for Markdown
                while at < len(lines) and lines[at].startswith("|"):
                    at += 1
        return "\n".join(out)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    tables = Tables(REPOSITORY / "tests/gpu/results")
    stale = False
    unused = set(TABLES)
    for name in DOCUMENTS:
        path = REPOSITORY / name
        text = path.read_text(encoding="utf-8")
        new = tables.rewrite(text)
        unused -= set(MARK.findall(text))
        if new != text and check:
            stale = True
            sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), new.splitlines(True), name, "tables.py"))
        elif new != text:
            path.write_text(new, encoding="utf-8")
    left_out = [row for row in tables.results(KERNELS) if id(row) not in tables.shown]
    for row in left_out:
        print(f"{KERNELS}.json: no table has '{row['what']}', case '{row.get('case', '')}', beside '{row['baseline']['name']}'",
              file=sys.stderr)
    if unused:
        print(f"no document has the table {', '.join(sorted(unused))}", file=sys.stderr)
    if stale:
        print("tests/bench/tables.py writes these tables; run it and commit the result", file=sys.stderr)
    return int(stale or bool(left_out) or bool(unused))


if __name__ == "__main__":
    sys.exit(main())
