# SPDX-License-Identifier: Apache-2.0
"""A run of scripts/bench as a table and as a picture."""

from __future__ import annotations

from pathlib import Path

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
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def write_plot(path: Path, rows: list[Row], title: str) -> bool:
    """Draws the ratios on a logarithmic axis; above 1 is better. Returns False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.ratio]
    values = [row.ratio if row.faster else 1 / row.ratio for row in shown]
    labels = [f"{row.what}\nbeside {row.against}" for row in shown]
    figure, axes = pyplot.subplots(figsize=(10, 0.55 * len(shown) + 1.5))
    axes.barh(
        range(len(shown)), values, color=["#2a7" if v >= 1 else "#c63" for v in values], left=0
    )
    axes.set_yticks(range(len(shown)), labels, fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("times as good as the baseline (log)")
    axes.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True
