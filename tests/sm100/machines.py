# SPDX-License-Identifier: Apache-2.0
"""The constants of timing_model.Machine: for the H200, whose timing twin the model is compared with, and for the B200, with where
each comes from. None was measured on a B200."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from timing_model import Machine, Tile, time_us, work_of

RESULTS = Path(__file__).resolve().parents[1] / "gpu" / "results" / "h200-twin.json"

# Fitted to the runs of the timing twin (h200-twin.json), but for clock, latencies and launch, which it measures directly, and
# for memory, which scripts/bench-gpu measures. Its MMAs are given in clocks.
H200 = Machine(
    sms=132, ghz=1.98, in_flight=75000, l2_latency=470, memory_latency=1300, l2=8000, memory=2100, mma_rate=1,
    wake=40, mma_latency=50, scoreboard=0, producer=60, stage=850, chunk=1400, setup=3500, launch_us=0.56,
)  # fmt: skip
H200_ISSUE_CLOCKS = 150  # of a stage, in the twin
H200_L2_BYTES = 25 << 20  # that all SMs find near: half of L2


@dataclass(frozen=True)
class Constant:
    value: float
    source: str


MEASURED = "H200 twin"
CONSTANTS = {
    "in_flight": Constant(H200.in_flight, f"bytes an SM's TMA has asked for: {MEASURED}"),
    "l2_latency": Constant(H200.l2_latency, f"clocks of a 16 KiB load: {MEASURED}"),
    "memory_latency": Constant(H200.memory_latency, f"likewise: {MEASURED}"),
    "producer": Constant(H200.producer, f"clocks to issue a stage's loads: {MEASURED}"),
    "stage": Constant(H200.stage, f"clocks of a stage's loads beyond its bytes: {MEASURED}"),
    "chunk": Constant(H200.chunk, f"clocks of 64 columns' epilogue: {MEASURED}"),
    "setup": Constant(H200.setup, f"clocks before the first load and after: {MEASURED}"),
    "launch_us": Constant(H200.launch_us, f"an empty launch in a graph: {MEASURED}"),
    "sms": Constant(148, "published"),
    "mma_rate": Constant(16384, "products a clock and SM: published, 9 PFLOP/s"),
    "ghz": Constant(1.85, "assumed; it may be less under load"),
    "memory": Constant(3946, "bytes a clock: assumed, 7.3 of the published 8 TB/s"),
    "l2": Constant(8970, "bytes a clock: assumed, as much for an SM as an H200's"),
    "wake": Constant(40, "clocks from a barrier to a thread: assumed"),
    "mma_latency": Constant(100, "clocks from an MMA's end to its commit: assumed"),
    "scoreboard": Constant(10, "clocks of a wait in the issuing loop: assumed"),
}
B200 = Machine(**{name: constant.value for name, constant in CONSTANTS.items()})  # type: ignore[arg-type]

# What, (m, n, k), us. Other tiles, clusters and clocks: an order of magnitude.
PUBLISHED = (
    ("8192^3, DeepGEMM's MXFP4 (pull request 348)", (8192, 8192, 8192), 2 * 8192**3 / 5702e6),
    ("4096x4096x7168, the same", (4096, 4096, 7168), 2 * 4096 * 4096 * 7168 / 5332e6),
    ("1x8192x8192, CUTLASS (FlashInfer 1732)", (1, 8192, 8192), 8192 * 8192 * 9 / 16 / 1.78e6),
    ("1x6144x4096, CUTLASS (vLLM 20646)", (1, 6144, 4096), 2 * 6144 * 4096 / 4.4e6),
)  # fmt: skip

CASE = re.compile(r"m (\d+), n (\d+), k (\d+), (\d+) clocks of MMA, weights from (\w+)")


def as_json(machine: Machine) -> dict:
    return {name: {"value": getattr(machine, name), "source": constant.source} for name, constant in CONSTANTS.items()}


def lines(machine: Machine) -> list[str]:
    """A line for each constant, of at most 80 columns."""
    return [f"  {name:15}{getattr(machine, name):>7g}  {constant.source}" for name, constant in CONSTANTS.items()]


def predictions(tiles: dict[str, Tile]) -> list[tuple[str, float, float]]:
    """Each run of the twin: its name, what was measured and what the model says, in us."""
    found = []
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["results"]:
        if not row["what"].startswith("twin_"):
            continue
        name = row["what"].removeprefix("twin_")
        match = CASE.fullmatch(row["case"])
        if match is None:
            raise ValueError(f"{RESULTS.name}: '{row['case']}' is no case of the twin")
        m, n, k, clocks = map(int, match.groups()[:4])
        cold = match[5] == "memory" or (m + n) * k * 9 / 16 > H200_L2_BYTES
        tile = replace(tiles[name], issue_clocks=H200_ISSUE_CLOCKS)
        work = work_of(tile, H200, m, n, k, cold)
        found.append((f"{name}, {row['case']}", row["value"], time_us(tile, H200, work, float(clocks))))
    return found
