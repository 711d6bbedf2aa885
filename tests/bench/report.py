# SPDX-License-Identifier: Apache-2.0
"""A run of scripts/bench as a table."""

from __future__ import annotations

from harness import Row


def number(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio_of(row: Row) -> str:
    if row.ratio is None:
        return ""
    return f"{number(row.ratio)}x faster" if row.faster else f"{row.ratio:.3g}x"


def table(rows: list[Row]) -> str:
    """A Markdown table, aligned for terminals."""
    cells = [["goal", "what", "cukiln", "beside", "that", "ratio", ""]]
    for row in rows:
        theirs = "" if row.theirs is None else f"{number(row.theirs)} {row.unit}".strip()
        ours = f"{number(row.ours)} {row.unit}".strip()
        cells.append([str(row.goal), row.what, ours, row.against, theirs, ratio_of(row), row.note])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
