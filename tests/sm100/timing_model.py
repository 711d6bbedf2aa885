# SPDX-License-Identifier: Apache-2.0
"""A discrete-event model of the sm_100a GEMMs: when each stage of each tile is asked for, loaded, issued and multiplied, and each
accumulator stored, by one CTA that has the most tiles of its launch.

Producer, TMA, issuer, tensor core and epilogue each do one thing after the other in a fixed order, so that each event's time
follows from those before it and no queue of events is needed. What other CTAs take of L2 and memory is in the rate at which
bytes arrive; that they arrive unevenly is not modelled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

RASTER_ROWS = 16  # kRasterRows of gemm_sm100_tile.cuh; facts.cpp compares
SIMULATED_TILES = 12  # of a CTA; those beyond take as long as the last of them


@dataclass(frozen=True)
class Machine:
    """Clocks are those of an SM, rates bytes for each of its clocks."""

    sms: int
    ghz: float
    in_flight: float  # bytes that one SM's TMA has asked for and not got
    l2_latency: float  # of a load that is alone, from its issue to its barrier
    memory_latency: float
    l2: float  # out of L2, into all SMs together
    memory: float  # out of memory, and into it
    mma_rate: float  # products of elements for each clock of an SM
    wake: float  # from a barrier's completion to the waiting thread's next instruction
    mma_latency: float  # from the last clock of an MMA to the arrival of its commit
    scoreboard: float  # for each instruction of the issue loop that waits for one
    producer: float  # to issue the loads of a stage
    stage: float  # that TMA takes for a stage beyond its bytes
    chunk: float  # of the epilogue, for 64 columns
    setup: float  # until the first load is issued (barriers, tensor memory, tensor maps), and from the last store to the end
    launch_us: float  # of a launch that does nothing, in a graph


@dataclass(frozen=True)
class Tile:
    """Of the sources; see facts.cpp."""

    name: str
    rows: int  # of the whole tile
    columns: int
    ctas: int
    swapped: bool
    stages: int
    stage_bytes: int  # of a CTA
    stage_k: int
    step_k: int
    store_columns: int
    overlap: bool
    issue_clocks: float = 0  # of a stage, from the machine code
    rows_shared: int = 1  # tiles of a cluster that share the loads of rows, by multicast

    @property
    def scale_bytes(self) -> int:
        return self.stage_bytes - (128 + self.columns // self.ctas) * self.stage_k // 2

    @property
    def shared_bytes(self) -> float:
        """Of a whole stage, those that a CTA gets from a load of another."""
        scales = 128 * self.stage_k // 16
        return (128 * self.stage_k // 2 + scales) * (1 - 1 / self.rows_shared)

    @property
    def asked_bytes(self) -> float:
        """Of a whole stage, those that a CTA loads itself."""
        return self.stage_bytes - self.shared_bytes

    @property
    def cluster(self) -> int:
        return self.ctas * self.rows_shared

    def mma_clocks(self, machine: Machine) -> float:
        """Of a whole stage."""
        return self.rows * self.columns * self.stage_k / self.ctas / machine.mma_rate


@dataclass(frozen=True)
class Work:
    """A GEMM [m, n, k] by one tile on a machine, as the busiest CTA sees it."""

    tiles: int  # of all CTAs
    slots: int  # tiles at the same time
    waves: float  # tiles of the busiest CTA
    steps: int  # of 64 of K
    stage_bytes: float  # that a CTA asks for, for a stage; rows beyond a matrix are not loaded
    latency: float  # of a load, from L2 or memory
    rates: dict[str, float]  # at which bytes arrive, by what limits them
    store_clocks: float  # that memory takes for a chunk of all CTAs

    @property
    def rate(self) -> float:
        return min(self.rates.values(), default=float("inf"))

    @property
    def wave_efficiency(self) -> float:
        return self.tiles / (self.waves * self.slots)

    def without(self, limit: str) -> Work:
        return replace(self, rates={name: rate for name, rate in self.rates.items() if name != limit})


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def matrix_bytes(rows: int, k: int) -> float:
    """Data and block scales."""
    return rows * k / 2 + ceil_div(rows, 128) * ceil_div(k, 64) * 512


def work_of(tile: Tile, machine: Machine, m: int, n: int, k: int, cold: bool = True) -> Work:
    rows, columns = (n, m) if tile.swapped else (m, n)
    row_tiles, column_tiles = ceil_div(rows, tile.rows), ceil_div(columns, tile.columns)
    tiles = row_tiles * column_tiles
    # Clusters of four do not fit on the last SMs, as on an H200.
    usable = machine.sms * 7 // 8 if tile.cluster >= 4 else machine.sms
    clusters, at_once = row_tiles * ceil_div(column_tiles, tile.rows_shared), max(usable // tile.cluster, 1)
    slots = at_once * tile.rows_shared
    active = min(clusters, at_once) * tile.cluster
    # A mean tile: the last ones of a row and of a column are smaller.
    mean_rows, mean_columns = rows / row_tiles, columns / column_tiles
    loaded = (mean_rows + mean_columns) / tile.ctas * tile.stage_k / 2 + tile.scale_bytes
    loaded -= tile.shared_bytes * min(mean_rows / tile.rows, 1)
    waves = ceil_div(clusters, at_once)
    latency, rates = machine.l2_latency, {"L2": machine.l2 / active}
    if cold:
        # Each byte comes from memory once, and from L2 as often as tiles share it; tiles that ask for it at the same time
        # all wait for memory. Columns are new in each wave of the first group of rows, rows in the first wave of a group.
        groups = min(ceil_div(row_tiles, RASTER_ROWS), waves)
        of_rows = mean_rows / (mean_rows + mean_columns)
        missed = of_rows * groups / waves + (1 - of_rows) / groups
        latency += missed * (machine.memory_latency - machine.l2_latency)
        unique = matrix_bytes(m, k) + matrix_bytes(n, k)
        total = tiles * tile.ctas * loaded * k / tile.stage_k
        rates["memory"] = machine.memory / active * max(total / unique, 1)
    rates["TMA"] = machine.in_flight / latency
    store = tile.rows / tile.ctas * min(tile.store_columns, columns) * 2 * active / machine.memory
    return Work(tiles, slots, waves, ceil_div(k, tile.step_k), loaded, latency, rates, store)


def cta_clocks(tile: Tile, machine: Machine, work: Work, mma_clocks: float | None = None) -> float:
    """From the start of the busiest CTA to its end."""
    whole = tile.mma_clocks(machine) if mma_clocks is None else mma_clocks
    steps_of_stage = tile.stage_k // tile.step_k
    mmas = [whole] * (work.steps // steps_of_stage)
    if work.steps % steps_of_stage:
        mmas.append(whole * (work.steps % steps_of_stage) / steps_of_stage)
    load = machine.stage + work.stage_bytes / work.rate
    chunks, chunk = ceil_div(tile.columns, tile.store_columns), max(machine.chunk, work.store_clocks)
    empty = deque([0.0] * tile.stages)  # when the stage that is next may be loaded
    tmem_empty = deque([0.0] * (1 if tile.overlap else 2))
    producer = port = machine.setup
    issuer = tensor = epilogue = machine.setup
    ends = []
    tiles = max(1, round(work.waves))
    for _ in range(min(tiles, SIMULATED_TILES)):
        issuer = max(issuer, tmem_empty.popleft() + machine.wake)
        for mma in mmas:
            producer = max(producer, empty.popleft() + machine.wake) + machine.producer
            port = max(port, producer) + load
            full = max(port, producer + work.latency)
            begin = max(issuer, full + machine.wake)
            issuer = begin + tile.issue_clocks
            tensor = max(max(tensor, begin + tile.issue_clocks / 2) + mma, issuer)
            empty.append(tensor + machine.mma_latency)
        begin = max(epilogue, tensor + machine.mma_latency + machine.wake)
        epilogue = begin + chunks * chunk
        tmem_empty.append(begin + (1 if tile.overlap else chunks) * chunk)
        ends.append(epilogue)
    more = tiles - len(ends)
    period = ends[-1] - ends[-2] if more else 0.0
    return ends[-1] + more * period


def time_us(tile: Tile, machine: Machine, work: Work, mma_clocks: float | None = None) -> float:
    """From the launch to the end."""
    return machine.launch_us + cta_clocks(tile, machine, work, mma_clocks) / machine.ghz / 1000


def fixed_us(machine: Machine) -> float:
    """What a launch takes, whatever its size: launch, first load, first chunk of the epilogue, end."""
    clocks = machine.setup + machine.memory_latency + machine.mma_latency + 2 * machine.wake + machine.chunk
    return machine.launch_us + clocks / machine.ghz / 1000


def limit_of(tile: Tile, machine: Machine, work: Work, roofline: float) -> str:
    """What would save the most time if it took none. `waves`: tiles spread evenly over all SMs."""
    whole, fixed = time_us(tile, machine, work), fixed_us(machine)
    even = fixed + (whole - fixed) * work.wave_efficiency
    without = {
        "MMA": time_us(tile, machine, work, 0.0),
        "issue": time_us(replace(tile, issue_clocks=0), machine, work),
        "epilogue": time_us(tile, replace(machine, chunk=0), replace(work, store_clocks=0)),
        "fixed": whole - fixed,
        "waves": max(even, roofline + machine.launch_us),
    }
    for name in work.rates:
        without[name] = time_us(tile, machine, work.without(name))
    return min(without, key=lambda name: without[name])


def roofline_us(machine: Machine, m: int, n: int, k: int) -> float:
    """Each byte from or to memory once, or each product on all SMs: whichever takes longer."""
    bytes_us = (matrix_bytes(m, k) + matrix_bytes(n, k) + m * n * 2) / machine.memory / machine.ghz / 1000
    return max(bytes_us, m * n * k / machine.mma_rate / machine.sms / machine.ghz / 1000)
