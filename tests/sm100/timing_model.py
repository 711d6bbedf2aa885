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
MMA_ROWS = 128  # of a CTA
ATOM_BYTES = 512  # of block scales, of 128 rows and 64 of K
SIMULATED_TILES = 12  # of a CTA; those beyond take as long as the last of them
GPC_SMS = 18  # assumed: a cluster's CTAs share a GPC


@dataclass(frozen=True)
class Machine:
    """Clocks are those of an SM, rates bytes for each of its clocks. machines.py says where each constant is from."""

    sms: int
    ghz: float
    mma_rate: float  # products of elements for each clock of an SM
    shared: float  # that MMAs read of an SM's shared memory
    memory: float  # out of memory, and into it
    l2: float  # out of L2, into all SMs together; what is multicast counts once
    ingress: float  # into one SM, multicast by others too
    multicast: float  # clocks beyond its own of each byte that another SM asked for
    in_flight: float  # bytes that one SM's TMA has asked for and not got
    l2_latency: float  # of a load that is alone, from its issue to its barrier
    memory_latency: float
    producer: float  # to issue the loads of a stage
    stage: float  # that TMA takes for a stage beyond its bytes
    wake: float  # from a barrier's completion to the waiting thread's next instruction
    mma_latency: float  # from the last clock of an MMA to the arrival of its commit
    scoreboard: float  # for each instruction of the issue loop that waits for one
    chunk: float  # of the epilogue, for 64 columns
    read: float  # until it has read them from tensor memory
    setup: float  # until the first load is issued: barriers, tensor memory, tensor maps
    drain: float  # from the last store to the end
    meet: float  # more of each of both, of pairs, whose CTAs wait for each other
    swapped_setup: float  # with swapped operands, which have a set-up, an epilogue and an end of their own
    swapped_epilogue: float  # of a tile,
    swapped_column: float  # and for each of its columns, of however many rows: each warp stores its own
    swapped_drain: float  # from a CTA's last instruction to the end
    split: float  # of a cluster whose CTAs add up their parts of K, instead of an epilogue
    dsmem: float  # bytes of sums that a CTA sends to those of its cluster
    launch_us: float  # of a launch that does nothing, in a graph

    @property
    def dependency(self) -> float:
        """Clocks from the end of a kernel to the return of griddepcontrol.wait in the one launched programmatically behind it.
        Assumed: no more than an empty launch."""
        return self.launch_us * self.ghz * 1000


@dataclass(frozen=True)
class Tile:
    """Of the sources; see facts.cpp."""

    name: str
    rows: int  # of the whole tile
    columns: int
    ctas: int
    swapped: bool
    stages: int
    stage_bytes: int  # that a CTA gets
    stage_k: int
    step_k: int
    store_columns: int
    overlap: bool
    issue_clocks: float = 0  # of a stage, from the machine code
    rows_shared: int = 1  # tiles side by side, of a cluster that shares the loads of rows, by multicast
    splits: tuple[int, ...] = (1,)  # CTAs of a cluster among which K may be split
    stored: float = 2  # bytes of the result, for each column of the accumulator
    chunk: float = 1  # the epilogue's clocks, of the machine's for 64 columns
    columns_shared: int = 1  # tiles one above the other, likewise
    scales_shared: int = 1  # CTAs of a pair that load a part of the scales of its columns each
    reads_first: bool = True  # the epilogue reads all columns of a chunk before it does more
    # Where half of the columns is multiplied after the other (run_mma_in_halves): of so many stages at the end of the last tile all
    # first halves come before the second ones.
    together: int = 0

    @property
    def scale_bytes(self) -> int:
        return self.stage_bytes - (self.rows + self.columns) // self.ctas * self.stage_k // 2

    @property
    def parts(self) -> int:
        """Of the columns, which have MMAs of their own."""
        return 2 if self.together else 1

    @property
    def tiles(self) -> int:
        """Of a cluster."""
        return self.rows_shared * self.columns_shared

    @property
    def cluster(self) -> int:
        """CTAs that are launched together, if K is not split."""
        return self.ctas * self.tiles

    def mma_clocks(self, machine: Machine) -> float:
        """Of a whole stage. Rows that a tile has not are multiplied, too. An MMA of few columns waits for shared memory."""
        columns = self.columns / self.parts
        read = (MMA_ROWS + columns / self.ctas) * self.stage_k / 2
        return self.parts * max(MMA_ROWS * columns * self.stage_k / machine.mma_rate, read / machine.shared)

    def meet(self, machine: Machine) -> float:
        return machine.meet if self.ctas > 1 else 0.0

    def set_up(self, machine: Machine) -> float:
        return machine.swapped_setup if self.swapped else machine.setup + self.meet(machine)

    def drain(self, machine: Machine) -> float:
        return machine.swapped_drain if self.swapped else machine.drain + self.meet(machine)

    def chunk_clocks(self, machine: Machine) -> float:
        """Of the epilogue, for as many columns as it stores at once."""
        if not self.swapped:
            return machine.chunk * self.chunk
        whole = machine.swapped_epilogue + machine.swapped_column * self.columns
        return whole / ceil_div(self.columns, self.store_columns)


@dataclass(frozen=True)
class Work:
    """A GEMM [m, n, k] by one tile on a machine, as the busiest CTA sees it."""

    tiles: int  # of all CTAs
    slots: int  # tiles at the same time
    waves: float  # tiles of the busiest CTA
    steps: int  # of 64 of K, of one CTA
    stage_bytes: float  # that a CTA asks for, for a stage; rows beyond a matrix are not loaded
    latency: float  # of a load, from L2 or memory
    rates: dict[str, float]  # at which bytes that were asked for arrive, by what limits them
    store_clocks: float  # that memory takes for a chunk of all CTAs
    multicast_bytes: float = 0  # of a stage, that other CTAs ask for
    reduction: float = 0  # clocks in which a cluster adds up its parts of K and stores them
    activations: float = 0  # share of the bytes that are not weights

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
    return rows * k / 2 + ceil_div(rows, 128) * ceil_div(k, 64) * ATOM_BYTES


def slots_of(tile: Tile, sms: int, splits: int) -> int:
    """Tiles that are computed at the same time."""
    cluster = tile.cluster * splits
    clusters = sms // cluster if cluster == tile.ctas else sms // GPC_SMS * (GPC_SMS // cluster)
    return max(clusters, 1) * tile.tiles


def work_of(tile: Tile, machine: Machine, m: int, n: int, k: int, cold: bool = True, splits: int = 1, experts: int = 1,
            slots: int | None = None) -> Work:  # fmt: skip
    """`experts`: of a grouped GEMM, whose m is that of all of them; each has n rows of B, and the same number of row tiles.
    `slots`: tiles at the same time, where that is known."""
    rows, columns = (n, m) if tile.swapped else (m, n)
    row_tiles, column_tiles = ceil_div(rows, tile.rows), ceil_div(columns, tile.columns)
    # A cluster of several tiles may be half empty.
    cluster_rows = ceil_div(row_tiles, tile.columns_shared)
    tiles = cluster_rows * ceil_div(column_tiles, tile.rows_shared) * tile.tiles
    slots = slots or slots_of(tile, machine.sms, splits)
    active = min(tiles, slots) * tile.ctas * splits
    # A mean tile: the last ones of a row and of a column are smaller.
    mean_rows, mean_columns = rows / row_tiles, columns / column_tiles
    of_rows = mean_rows / (mean_rows + mean_columns)
    of_data, row_scales = tile.stage_k / 2 / tile.ctas, ATOM_BYTES * tile.stage_k // tile.step_k
    column_scales = tile.scale_bytes - row_scales
    received = (mean_rows + mean_columns) * of_data + tile.scale_bytes
    asked = (mean_rows * of_data + row_scales) / tile.rows_shared
    asked += (mean_columns * of_data + column_scales / tile.scales_shared) / tile.columns_shared
    waves = ceil_div(tiles, slots)
    steps_of_stage = tile.stage_k // tile.step_k
    steps = ceil_div(k, tile.step_k)
    steps = min(ceil_div(ceil_div(steps, steps_of_stage), splits) * steps_of_stage, steps)
    latency, rates = machine.l2_latency, {"L2": machine.l2 / active, "SM": machine.ingress * asked / received}
    if cold:
        # Each byte comes from memory once, and from L2 as often as tiles share it; tiles that ask for it at the same time
        # all wait for memory. Columns are new in each wave of the first group of rows, rows in the first wave of a group.
        groups = min(ceil_div(cluster_rows, RASTER_ROWS), waves)
        weights = min(experts, row_tiles)
        missed = of_rows * groups / waves + (1 - of_rows) * max(1 / groups, weights / row_tiles if experts > 1 else 0)
        latency += missed * (machine.memory_latency - machine.l2_latency)
        unique = matrix_bytes(m, k) + weights * matrix_bytes(n, k)
        total = tiles * tile.ctas * asked * k / tile.stage_k
        rates["memory"] = machine.memory / active * max(total / unique, 1)
    rates["TMA"] = machine.in_flight / latency
    store = tile.rows / tile.ctas * min(tile.store_columns, columns) * tile.stored * active / machine.memory
    sums = tile.rows * min(columns, tile.columns) * 4 * (splits - 1) / splits  # its own share a CTA does not send
    reduction = machine.split + sums / machine.dsmem if splits > 1 else 0
    return Work(tiles, slots, waves, steps, asked, latency, rates, store, received - asked, reduction,
                1 - of_rows if tile.swapped else of_rows)  # fmt: skip


def cta_clocks(tile: Tile, machine: Machine, work: Work, mma_clocks: float | None = None, chained: bool = False) -> float:
    """From the start of the busiest CTA to its end; `chained`: from the end of the kernel before, behind which this one was
    launched programmatically: it is set up by then, and has loaded as many stages of weights as it has room for."""
    whole = tile.mma_clocks(machine) if mma_clocks is None else mma_clocks
    steps_of_stage = tile.stage_k // tile.step_k
    mmas = [whole] * (work.steps // steps_of_stage)
    if work.steps % steps_of_stage:
        mmas.append(whole * (work.steps % steps_of_stage) / steps_of_stage)
    load = machine.stage + work.stage_bytes / work.rate + work.multicast_bytes * machine.multicast
    loaded_before = tile.stages if chained else 0
    of_activations = machine.stage + work.activations * work.stage_bytes / work.rate
    chunks, chunk = ceil_div(tile.columns, tile.store_columns), max(tile.chunk_clocks(machine), work.store_clocks)
    if work.reduction:
        chunk = 0
    read = machine.read if tile.reads_first and not tile.swapped else chunk
    empty = deque([0.0] * tile.stages)  # when the stage that is next may be loaded
    tmem_empty = deque([0.0] * (1 if tile.overlap else 2))
    tmem_read = deque([0.0] * 2)  # of a tile in halves
    producer = port = issuer = tensor = epilogue = machine.dependency if chained else tile.set_up(machine)
    ends = []
    tiles = max(1, round(work.waves))
    simulated = min(tiles, SIMULATED_TILES)
    for number in range(1, simulated + 1):
        shared = tmem_empty.popleft() + machine.wake  # the columns that both accumulators have; where they have none: all
        issuer = max(issuer, (tmem_read.popleft() + machine.wake) if tile.parts > 1 else shared)
        complete = [0.0] * tile.parts
        last = min(tile.together, len(mmas)) if number == simulated and tile.parts > 1 else 1
        s = 0
        while s < len(mmas):
            count = last if s == len(mmas) - last else 1
            full = []
            for _ in range(count):
                producer = max(producer, empty.popleft() + machine.wake) + machine.producer
                port = max(port, producer) + (of_activations if loaded_before > 0 else load)
                loaded_before -= 1
                full.append(max(port, producer + work.latency))
            apart = tile.parts > 1 and (s == 0 or s + count == len(mmas))
            for part in range(tile.parts):
                # The loop for one half, with copies of scales, takes as long as that for both, and half of that without them.
                issue = tile.issue_clocks / (1 if apart and (part == 0 or count > 1) else tile.parts)
                # The half with the shared columns comes last in the first stage, and first in the last ones.
                if tile.parts > 1 and s == 0 and part == (0 if count == len(mmas) else 1):
                    issuer = max(issuer, shared)
                for i in range(count):
                    begin = max(issuer, full[i] + machine.wake)
                    issuer = begin + issue
                    tensor = max(max(tensor, begin + issue / 2) + mmas[s + i] / tile.parts, issuer)
                    if part == tile.parts - 1:
                        empty.append(tensor + machine.mma_latency)
                complete[part] = tensor
            s += count
        begin = epilogue = max(epilogue, complete[0] + machine.mma_latency + machine.wake) + work.reduction
        for of_part in complete:
            epilogue = max(epilogue, of_part + machine.mma_latency + machine.wake) + chunks / tile.parts * chunk
        tmem_empty.append(begin + (0 if tile.overlap else chunks - 1) * chunk + read)
        tmem_read.append(epilogue - chunk + read)
        ends.append(epilogue)
    more = tiles - len(ends)
    period = ends[-2] - ends[-3] if more else 0.0  # the last tile's is another
    return ends[-1] + more * period + tile.drain(machine)


def time_us(tile: Tile, machine: Machine, work: Work, mma_clocks: float | None = None) -> float:
    """From the launch to the end."""
    return machine.launch_us + cta_clocks(tile, machine, work, mma_clocks) / machine.ghz / 1000


def chained_us(tile: Tile, machine: Machine, work: Work) -> float:
    """From the end of the kernel before to the end, if the kernel was launched programmatically behind one that leaves its shared
    memory free, and no earlier kernel writes the weights."""
    return cta_clocks(tile, machine, work, chained=True) / machine.ghz / 1000


def fixed_us(tile: Tile, machine: Machine, reduction: float = 0) -> float:
    """What a launch takes, whatever its size: launch, first load, first chunk of the epilogue or the sums of a cluster, end."""
    clocks = tile.set_up(machine) + machine.memory_latency + machine.mma_latency + 2 * machine.wake + tile.drain(machine)
    return machine.launch_us + (clocks + (reduction or tile.chunk_clocks(machine))) / machine.ghz / 1000


def limit_of(tile: Tile, machine: Machine, work: Work, roofline: float) -> str:
    """What would save the most time if it took none. `waves`: tiles spread evenly over all SMs."""
    whole, fixed = time_us(tile, machine, work), fixed_us(tile, machine, work.reduction)
    even = fixed + (whole - fixed) * work.wave_efficiency
    without = {
        "MMA": time_us(tile, machine, work, 0.0),
        "issue": time_us(replace(tile, issue_clocks=0), machine, work),
        "epilogue": time_us(
            tile, replace(machine, chunk=0, read=0, swapped_epilogue=0, swapped_column=0), replace(work, store_clocks=0)
        ),
        "fixed": whole - fixed + (work.reduction / machine.ghz / 1000),
        "reduction": time_us(tile, machine, replace(work, reduction=0)),
        "waves": max(even, roofline + machine.launch_us),
    }
    for name in work.rates:
        without[name] = time_us(tile, machine, work.without(name))
    return min(without, key=lambda name: without[name])


def roofline_us(machine: Machine, m: int, n: int, k: int) -> float:
    """Each byte from or to memory once, or each product on all SMs: whichever takes longer."""
    bytes_us = (matrix_bytes(m, k) + matrix_bytes(n, k) + m * n * 2) / machine.memory / machine.ghz / 1000
    return max(bytes_us, m * n * k / machine.mma_rate / machine.sms / machine.ghz / 1000)
