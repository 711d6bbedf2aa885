# SPDX-License-Identifier: Apache-2.0
"""Where each constant of timing_model.Machine is from, for two machines, on neither of which the kernels have run: `published` loads
as others measured a B200, `h100` as an H100 does. Their values are those of the launcher's plan (sm100_model.hpp); only what its
model leaves out is here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from timing_model import Machine, Tile, Work, cta_clocks, time_us, work_of

RESULTS = Path(__file__).resolve().parents[1] / "gpu" / "results" / "h100-80gb-hbm3-twin.json"
SETS = ("published", "h100")
SMS = 148
SCOREBOARD = 10

FITTED = ("stage", "ingress", "l2_latency")  # of `published`: near the best for MAINLOOPS, together
TWIN = "H100 twin"
# In at most 47 columns. Those with two sources have a value for each machine.
SOURCES: dict[str, str | tuple[str, str]] = {
    "stage": ("clocks beyond a stage's bytes: main loops", f"likewise: {TWIN}"),
    "ingress": ("bytes a clock into an SM: main loops", f"likewise: {TWIN}"),
    "multicast": ("clocks a byte that others asked for: assumed", f"likewise: {TWIN}"),
    "l2": ("bytes a clock: least for NVIDIA's 94.3 %", f"likewise, for as many SMs: {TWIN}"),
    "in_flight": ("bytes: SemiAnalysis, TMA gains up to 128 KiB", f"bytes an SM's TMA has asked for: {TWIN}"),
    "l2_latency": f"clocks of a 16 KiB load: {TWIN}, main loops",
    "memory_latency": f"likewise: {TWIN}; SemiAnalysis 1320",
    "producer": f"clocks to issue a stage: {TWIN}, main loops",
    "chunk": f"clocks of 64 columns' epilogue: {TWIN}",
    "read": "clocks until these are read: assumed",
    "setup": f"clocks of a CTA to its first load: in {TWIN}",
    "drain": f"clocks behind a CTA's last store: in {TWIN}",
    "meet": f"clocks, more of both, of pairs: in {TWIN}",
    "launch_us": f"an empty launch in a graph: {TWIN}",
    "swapped_setup": f"likewise, swapped operands: in {TWIN}",
    "swapped_epilogue": f"clocks of a tile's epilogue: in {TWIN}",
    "swapped_column": "likewise, for each column",
    "swapped_drain": f"clocks behind a CTA's end: in {TWIN}",
    "split": f"clocks to add up K's parts: in {TWIN}",
    "dsmem": f"bytes a clock, likewise: in {TWIN}",
    "sms": "published",
    "mma_rate": "products a clock and SM: SemiAnalysis",
    "shared": "bytes a clock that MMAs read: SemiAnalysis",
    "ghz": "assumed; less under load, by an unknown amount",
    "memory": "bytes a clock, 7.25 TB/s: SemiAnalysis, by TMA",
    "wake": "clocks from a barrier to a thread: assumed",
    "mma_latency": "from an MMA to its commit: SemiAnalysis",
    "scoreboard": "clocks of a wait in the issuing loop: assumed",
}
# SemiAnalysis: "Dissecting Nvidia Blackwell", 2026-03, and the results in its repository SemiAnalysisAI/microbench-blackwell, all of a
# B200: umma_throughput (MXF4: 64 and 128 clocks an MMA of 128 and 256 columns, 48 one of 64, which are 128 bytes of shared memory a
# clock), umma_latency (137 clocks beyond the MMA's own, 173 of a pair, each with the wait: mma_latency and wake are 140),
# tma2d_throughput (all SMs, from memory: 7.25 TB/s; 715 ns with one load of 16 KiB in flight) and cutlass_gemm_mainloop.
NVIDIA_SHARE = 0.943  # of the tensor core's peak, a large GEMM: "CuTe DSL tutorials on optimizing NVFP4 GEMM for Blackwell", 2026-01
NVIDIA_TILE = "256x256_x2"  # with as much multicast as ours has: which clusters NVIDIA took is not known
# cutlass_gemm_mainloop: GEMMs of CUTLASS in FP8 on one SM of a B200 at 1.3 GHz, 128 rows, K = 131072, from L2. Columns, 128-byte parts
# of K in a stage, stages, clocks of a stage. With six stages they are bound by the MMAs' reads of shared memory, with few by the loads'
# latency: a stage's loads take no more than a clock for each 128 bytes, and hardly anything beyond.
MAINLOOP_GHZ, MAINLOOP_LOADS = 1.3, 2  # loads for each part
MAINLOOPS = (
    (16, 1, 2, 429), (16, 1, 3, 289), (16, 1, 4, 219), (16, 1, 6, 165), (64, 1, 2, 490), (64, 1, 3, 328), (64, 1, 4, 250), (64, 1, 6, 207),
    (128, 1, 2, 563), (128, 1, 3, 377), (128, 1, 4, 288), (128, 1, 6, 275), (256, 1, 2, 747), (256, 1, 3, 528), (256, 1, 4, 529),
    (16, 2, 2, 597), (16, 2, 3, 404), (16, 2, 4, 337), (16, 2, 6, 336), (64, 2, 2, 706), (64, 2, 3, 474), (64, 2, 4, 415),
    (128, 2, 2, 848), (128, 2, 3, 573),
)  # fmt: skip


def machines_of(found: dict[str, dict[str, float]]) -> dict[str, Machine]:
    """From the constants that facts.cpp prints. `issue` is the plan's alone: the event model has each kernel's machine code."""
    return {
        name: Machine(sms=SMS, scoreboard=SCOREBOARD, **{key: value for key, value in constants.items() if key != "issue"})
        for name, constants in found.items()
    }


# Of the kernels, not of the machine. Those of others are not known: published runs are compared with the times of ours as they first were.
OF_KERNELS = {"producer": 60, "chunk": 1400, "setup": 1750, "drain": 1750, "swapped_setup": 1750, "swapped_epilogue": 0,
              "swapped_column": 1400 / 64, "swapped_drain": 1750, "split": 5360, "dsmem": 11}  # fmt: skip


def twin_of(h100: Machine) -> Machine:
    """The H100 of the timing twin, whose MMAs are given in clocks."""
    return replace(h100, sms=132, ghz=1.98, l2=6376, memory=1533, mma_rate=1, mma_latency=50, scoreboard=0)


TWIN_ISSUE_CLOCKS = 85  # of a stage
TWIN_L2_BYTES = 40 << 20  # that all SMs find near

GROUPED_UP_STORED = 9 / 32  # bytes for a column of the accumulator: NVFP4 of half as many columns


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
# Other tiles, clusters and clocks: how near kernels of others come to the machine, no measurements of it. FlashInfer 2540 is a table of
# the fastest of four libraries, on a B200 or a GB200; that its times are of the kernels alone, as CUPTI measures them, is assumed. With
# thousands of rows power limits the clock, to an unknown one: a fit of loads to such times finds loads that are too slow.
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

CASE = re.compile(
    r"m (\d+), n (\d+), k (\d+), (?P<clocks>\d+) clocks of MMA, weights from (?P<where>\w+)"
    r"(?:, K split by (?P<splits>\d+))?(?P<chained>, chained)?(?:, on (?P<ctas>\d+) CTAs)?"
)


def mainloop_clocks(machine: Machine, columns: int, parts: int, stages: int) -> float:
    """Of a stage of MAINLOOPS, by the event model. Each part is a quarter as many loads as a stage of ours has, times MAINLOOP_LOADS."""
    loads = parts * MAINLOOP_LOADS / 4
    machine = replace(machine, producer=machine.producer * loads, stage=machine.stage * loads)
    k = 256 * parts  # of four bits: FP8 has half as many elements, and half the rate
    tile = Tile("mainloop", 128, columns, 1, False, stages, (128 + columns) * k // 2, k, k, 64, False)

    def clocks(steps: int) -> float:
        return cta_clocks(tile, machine, Work(1, 1, 1, steps, tile.stage_bytes, machine.l2_latency, {"SM": machine.ingress}, 0))

    return (clocks(200) - clocks(100)) / 100


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
        published, h100 = (getattr(machines[which], name) for which in SETS)
        of_first, of_second = (source, None) if isinstance(source, str) else source
        found.append(f"  {name:15}{published:>7g}{'':9}{of_first}")
        if of_second:
            found.append(f"{'':24}{h100:>7g}  {of_second}")
    return found


def predictions(tiles: dict[str, Tile], h100: Machine) -> list[tuple[str, float, float]]:
    """Each run of the twin: its name, what was measured and what the model says, in us."""
    twin, found = twin_of(h100), []
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    clusters = {int(row["case"].split()[1]): row["value"] for row in rows if row["what"] == "clusters at the same time"}
    for row in rows:
        if not row["what"].startswith("twin_"):
            continue
        name = row["what"].removeprefix("twin_")
        match = CASE.fullmatch(row["case"])
        if match is None:
            raise ValueError(f"{RESULTS.name}: '{row['case']}' is no case of the twin")
        m, n, k = map(int, match.groups()[:3])
        splits, clocks = int(match["splits"] or 1), float(match["clocks"])
        cold = match["where"] == "memory" or (m + n) * k * 9 / 16 > TWIN_L2_BYTES
        tile = replace(tiles[name], issue_clocks=TWIN_ISSUE_CLOCKS)
        ctas = tile.cluster * splits
        slots = int(match["ctas"]) // tile.ctas if match["ctas"] else clusters[ctas] * tile.tiles if ctas > 1 else None
        work = work_of(tile, twin, m, n, k, cold, splits, slots=slots)
        if match["chained"]:
            us = cta_clocks(tile, twin, work, clocks, chained=True) / twin.ghz / 1000
        else:
            us = time_us(tile, twin, work, clocks)
        found.append((f"{name}, {row['case']}", row["value"], us))
    return found
