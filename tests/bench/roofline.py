# SPDX-License-Identifier: Apache-2.0
"""The results of scripts/bench-gpu as a table and as a roofline plot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import results


@dataclass
class Measured:
    kernel: str
    shape: str
    us: float
    rival: str
    rival_us: float
    limit_us: float
    bytes: float
    operations: float
    samples: list[float] = field(default_factory=list)
    rival_samples: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.rival_us / self.us

    @property
    def fraction(self) -> float:
        return self.limit_us / self.us


def table(rows: list[Measured]) -> str:
    lines = ["| kernel | shape | us | of the limit | beside | us | ratio |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {row.kernel} | {row.shape} | {row.us:.1f} | {row.fraction:.0%} | {row.rival} "
        f"| {row.rival_us:.1f} | {row.ratio:.2f}x |"
        for row in rows
    ]
    return "\n".join(lines)


def to_result(measured: Measured) -> dict:
    """As tests/gpu/results keeps it."""
    return results.row(measured.kernel, "us", measured.us, measured.samples, case=measured.shape,
                       baseline=measured.rival, baseline_value=measured.rival_us,
                       baseline_samples=measured.rival_samples, limit=measured.limit_us,
                       bytes=measured.bytes, operations=measured.operations)  # fmt: skip


def kept(path: Path) -> tuple[list[Measured], dict[str, float], str]:
    """What `plot` needs of a kept run: the rows, the device's limits, its name."""
    run = results.read(path)
    rows = [
        Measured(row["what"], row["case"], row["value"], row["baseline"]["name"], row["baseline"]["value"],
                 row["limit"], row["bytes"], row["operations"])  # fmt: skip
        for row in run["results"]
        if "limit" in row  # a decode step has none
    ]
    return rows, run["limits"], run["device"]["name"]


MARKERS = "osD^vPX<>*"  # with colours, so that kernels differ in print too


def plot(path: Path, rows: list[Measured], limits: dict[str, float], title: str) -> bool:
    """Draws operations per byte (x) and operations per second (y), with a line from each point to its baseline.
    Returns False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    figure, axes = pyplot.subplots(figsize=(10, 6.5))
    axes.set_xscale("log")
    axes.set_yscale("log")
    memory, matrix = limits["bytes_per_s"] / 1e12, limits["operations_per_s"] / 1e12
    lowest = min(row.operations / row.bytes for row in rows) / 2
    highest = 2 * max(matrix / memory, *(row.operations / row.bytes for row in rows))
    axes.plot([lowest, matrix / memory, highest], [lowest * memory, matrix, matrix],
              color="black", linewidth=1)  # fmt: skip
    axes.annotate(f"memory, {memory:.2f} TB/s", (4 * lowest, 4 * lowest * memory), xytext=(-4, 8),
                  textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    axes.annotate(f"tensor cores in bf16, {matrix:.0f} TFLOP/s", (highest, matrix), xytext=(0, 5),
                  textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    keys = []
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    for i, kernel in enumerate(kernels):
        mine = [row for row in rows if row.kernel == kernel]
        # Where several have the same operations a byte, they stand side by side.
        intensity = [row.operations / row.bytes * 1.02 ** (i - len(kernels) / 2) for row in mine]
        ours = [row.operations / row.us / 1e6 for row in mine]
        theirs = [row.operations / row.rival_us / 1e6 for row in mine]
        color = pyplot.get_cmap("tab10")(i % 10)
        axes.vlines(intensity, theirs, ours, color=color, linewidth=0.8, alpha=0.5)
        axes.plot(intensity, theirs, "_", color=color, markersize=7)
        keys += axes.plot(intensity, ours, MARKERS[i % len(MARKERS)], color=color, markersize=6,
                          markeredgecolor="white", markeredgewidth=0.5, label=kernel)  # fmt: skip
    keys.append(Line2D([], [], color="gray", marker="_", linestyle="", label="baseline"))
    axes.set_xlabel("operations per byte that must be moved")
    axes.set_ylabel("tera-operations per second")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(which="major", linewidth=0.4, alpha=0.5)
    axes.set_title(title, fontsize=10)
    axes.legend(handles=keys, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
