# SPDX-License-Identifier: Apache-2.0
"""Where each constant of timing_model.Machine is from, for two machines, neither of which was measured on sm_100a: `published` can
do what published runs of others on a B200 require, `h200` loads as an H200 does. Their values are those of the launcher's plan
(sm100_model.hpp); only what its model leaves out is here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from timing_model import Machine, Tile, time_us, work_of

RESULTS = Path(__file__).resolve().parents[1] / "gpu" / "results" / "h200-twin.json"
SETS = ("published", "h200")
SMS = 148
SCOREBOARD = 10

TWIN = "H200 twin"
# In at most 47 columns. Those with two sources have a value for each machine.
SOURCES: dict[str, str | tuple[str, str]] = {
    "stage": ("the most by which 1024x9216x7168 is in time", f"clocks beyond a stage's bytes: {TWIN}"),
    "in_flight": ("bytes: SemiAnalysis, TMA gains up to 128 KiB", f"bytes an SM's TMA has asked for: {TWIN}"),
    "ingress": ("bytes a clock: required by NVIDIA's 94.3 %", "assumed, as TMA asks for from L2"),
    "l2_latency": f"clocks of a 16 KiB load: {TWIN}",
    "memory_latency": f"likewise: {TWIN}",
    "producer": f"clocks to issue a stage's loads: {TWIN}",
    "chunk": f"clocks of 64 columns' epilogue: {TWIN}",
    "setup": f"clocks to the first load: half of {TWIN}'s",
    "drain": "clocks behind the last store: the other half",
    "launch_us": f"an empty launch in a graph: {TWIN}",
    "barrier": "clocks, twice a reduction: H200, sm90_plan.hpp",
    "dsmem": "bytes a clock in a reduction: H200, the same",
    "sms": "published",
    "mma_rate": "products a clock and SM: published, 9 PFLOP/s",
    "ghz": "assumed; it may be less under load",
    "memory": "bytes a clock: assumed, 7.3 of 8 TB/s published",
    "l2": "bytes a clock: assumed, for an SM as an H200's",
    "wake": "clocks from a barrier to a thread: assumed",
    "mma_latency": "clocks from an MMA to its commit: assumed",
    "scoreboard": "clocks of a wait in the issuing loop: assumed",
}
# SemiAnalysis: "Dissecting Nvidia Blackwell", 2026-03. NVIDIA: "CuTe DSL tutorials on optimizing NVFP4 GEMM for Blackwell",
# 2026-01, 94.3 % of the tensor core's peak by pairs of SMs and multicast: an SM then gets the 38,912 bytes of its part of a stage of
# 256 x 256 x 256 in 512 clocks / 0.943. 1024x9216x7168 is the run of FlashInfer 2540 below.


def machines_of(found: dict[str, dict[str, float]]) -> dict[str, Machine]:
    """From the constants that facts.cpp prints. `issue` is the plan's alone: the event model has each kernel's machine code."""
    return {
        name: Machine(sms=SMS, scoreboard=SCOREBOARD, **{key: value for key, value in constants.items() if key != "issue"})
        for name, constants in found.items()
    }


def twin_of(h200: Machine) -> Machine:
    """The H200 of the timing twin, whose MMAs are given in clocks. Of `h200`, clock, latencies and launch were measured directly, and
    the others fitted to the twin's runs; scripts/bench-gpu measures memory."""
    return replace(h200, sms=132, ghz=1.98, l2=8000, memory=2100, mma_rate=1, mma_latency=50, scoreboard=0)


TWIN_ISSUE_CLOCKS = 150  # of a stage
TWIN_L2_BYTES = 25 << 20  # that all SMs find near: half of L2


@dataclass(frozen=True)
class Run:
    """Of others, on a B200: whose kernel, where it was published, the shape, the time, and whether that has the launch in it."""

    whose: str
    m: int
    n: int
    k: int
    us: float
    launch: bool


DEEPGEMM, FLASHINFER = "DeepGEMM 348", "FlashInfer 2540"  # pull requests
# Other tiles, clusters and clocks. FlashInfer 2540 is a table of the fastest of four libraries, on a B200 or a GB200; that its times are
# of the kernels alone, as CUPTI measures them, is assumed.
PUBLISHED = (
    Run(DEEPGEMM, 8192, 8192, 8192, 2 * 8192**3 / 5702e6, True),
    Run(DEEPGEMM, 4096, 4096, 7168, 2 * 4096 * 4096 * 7168 / 5332e6, True),
    Run(DEEPGEMM, 1024, 7168, 2048, 2 * 1024 * 7168 * 2048 / 2056e6, True),
    Run(DEEPGEMM, 512, 7168, 2048, 2 * 512 * 7168 * 2048 / 1439e6, True),
    Run(DEEPGEMM, 128, 24576, 1536, 2 * 128 * 24576 * 1536 / 980e6, True),
    Run(FLASHINFER, 1024, 9216, 7168, 25.904, False),
    Run(FLASHINFER, 1024, 7168, 4608, 17.440, False),
    Run(FLASHINFER, 256, 9216, 7168, 12.576, False),
    Run(FLASHINFER, 256, 7168, 4608, 9.184, False),
    Run(FLASHINFER, 256, 4608, 7168, 10.560, False),
    Run(FLASHINFER, 256, 7168, 256, 4.064, False),
    Run(FLASHINFER, 64, 896, 5120, 6.688, False),
    Run(FLASHINFER, 64, 512, 7168, 7.696, False),
    Run(FLASHINFER, 16, 9216, 7168, 11.872, False),
    Run(FLASHINFER, 16, 7168, 4608, 8.640, False),
    Run(FLASHINFER, 4, 7168, 256, 3.808, False),
    Run("CUTLASS (FlashInfer 1732)", 1, 8192, 8192, 8192 * 8192 * 9 / 16 / 1.78e6, True),
    Run("Triton (Helion 3046)", 1, 4096, 4096, 5.13, True),
)  # fmt: skip

CASE = re.compile(r"m (\d+), n (\d+), k (\d+), (\d+) clocks of MMA, weights from (\w+)")


def source_of(name: str, machine: str) -> str:
    source = SOURCES[name]
    return source if isinstance(source, str) else source[SETS.index(machine)]


def as_json(machines: dict[str, Machine]) -> dict:
    return {
        name: {field.name: {"value": getattr(machine, field.name), "source": source_of(field.name, name)} for field in fields(Machine)}
        for name, machine in machines.items()
    }


def lines(machines: dict[str, Machine]) -> list[str]:
    """The constants and their sources, in at most 80 columns."""
    found = []
    for name, source in SOURCES.items():
        published, h200 = (getattr(machines[which], name) for which in SETS)
        of_first, of_second = (source, None) if isinstance(source, str) else source
        found.append(f"  {name:15}{published:>7g}{'':9}{of_first}")
        if of_second:
            found.append(f"{'':24}{h200:>7g}  {of_second}")
    return found


def predictions(tiles: dict[str, Tile], h200: Machine) -> list[tuple[str, float, float]]:
    """Each run of the twin: its name, what was measured and what the model says, in us."""
    twin, found = twin_of(h200), []
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["results"]:
        if not row["what"].startswith("twin_"):
            continue
        name = row["what"].removeprefix("twin_")
        match = CASE.fullmatch(row["case"])
        if match is None:
            raise ValueError(f"{RESULTS.name}: '{row['case']}' is no case of the twin")
        m, n, k, clocks = map(int, match.groups()[:4])
        cold = match[5] == "memory" or (m + n) * k * 9 / 16 > TWIN_L2_BYTES
        tile = replace(tiles["swapped_64" if name == "swapped" else name], issue_clocks=TWIN_ISSUE_CLOCKS)
        work = work_of(tile, twin, m, n, k, cold)
        found.append((f"{name}, {row['case']}", row["value"], time_us(tile, twin, work, float(clocks))))
    return found
