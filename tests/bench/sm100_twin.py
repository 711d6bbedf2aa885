# SPDX-License-Identifier: Apache-2.0
"""Runs the timing twin of the sm_100a GEMMs on an sm_90a GPU: the shipped source with TMA, mbarriers, schedule and epilogue
as they are, and MMAs that are arrivals after a number of clocks (sm100_twin.cu). Writes <device>-twin.json: constants of
scripts/model-sm100, and runs that its model has to predict.

It needs PyTorch and a GPU of sm_90a, and nvcc where no cubin of sm100_twin.cu is given.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import results

U8, U16, BF16 = 0, 1, 9  # CUtensorMapDataType
TILE_ROWS, THREADS, STAGE_K, ATOM_K = 128, 224, 256, 64
SMS = 132
CLUSTER, PROGRAMMATIC = 4, 6  # CUlaunchAttributeID
GROUPED_UP_SHARED = 229480  # moe_grouped.hpp
SPIN_NS = 4000  # of the kernel before a chained one, so that this one is set up and has its first weights


@dataclass(frozen=True)
class Tile:
    """Of sm100_plan.hpp."""

    columns: int
    shared: int
    ctas: int = 1
    rows_shared: int = 1
    swapped: bool = False
    rows: int = 128  # for each CTA
    columns_shared: int = 1

    @property
    def cluster(self) -> int:
        return self.ctas * self.rows_shared * self.columns_shared

    @property
    def scales_loaded(self) -> tuple[int, int]:
        """Columns and atoms of a load of column scales; of a pair each CTA loads a part."""
        atoms = ceil_div(self.columns, TILE_ROWS)
        return (self.columns, 4) if self.ctas == 1 else (TILE_ROWS, 4 * atoms // (self.ctas * self.columns_shared))


TILES = {
    "128x128": Tile(128, 218112),
    "128x256": Tile(256, 199680),
    "256x256": Tile(256, 228352, 2),
    "256x128": Tile(128, 205824, 2),
    "256x256_x2": Tile(256, 228352, 2, 2),
    "256x192_x2": Tile(192, 207872, 2, 2),
    "256x128_x2": Tile(128, 205824, 2, 2),
    "256x256_x4": Tile(256, 228352, 2, 2, columns_shared=2),
    "256x192_x4": Tile(192, 207872, 2, 2, columns_shared=2),
    "swapped_16": Tile(16, 230400, swapped=True),
    "swapped_32": Tile(32, 230400, swapped=True),
    "swapped_64": Tile(64, 218112, swapped=True),
    "swapped_128": Tile(128, 218112, swapped=True),
    "swapped_256": Tile(256, 199680, swapped=True),
    "swapped_64_half": Tile(64, 222208, swapped=True, rows=64),
}


@dataclass(frozen=True)
class Run:
    tile: str
    m: int
    n: int
    k: int
    clocks: int  # of MMA, for a stage of a CTA
    cold: bool  # weights from memory
    splits: int = 1
    chained: bool = False  # behind a kernel that it is launched programmatically behind, with constant_b
    most_ctas: int = 0  # fewer than SMs, if not 0

    def __str__(self) -> str:
        return (f"m {self.m}, n {self.n}, k {self.k}, {self.clocks} clocks of MMA, weights from {'memory' if self.cold else 'L2'}"
                + (f", K split by {self.splits}" if self.splits > 1 else "") + (", chained" if self.chained else "")
                + (f", on {self.most_ctas} CTAs" if self.most_ctas else ""))  # fmt: skip


SAMPLES = 7
COLD_BYTES = 240 << 20  # of weights that take turns, so that none stays in L2


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class LaunchConfig(ctypes.Structure):
    _fields_ = (*((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(LaunchAttribute)), ("count", ctypes.c_uint))  # fmt: skip


class Gpu:
    def __init__(self, image: bytes) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(self.module), image)
        self.kernels: dict[str, ctypes.c_void_p] = {}

    def call(self, name: str, *arguments) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed with {result}")

    def kernel(self, name: str, shared: int) -> ctypes.c_void_p:
        if name not in self.kernels:
            self.kernels[name] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self.kernels[name]), self.module, name.encode())
        self.call("cuFuncSetAttribute", self.kernels[name], 8, shared)  # the most dynamic shared memory
        return self.kernels[name]

    def config(self, grid: int, block: int, shared: int, cluster: int, programmatic: bool) -> LaunchConfig:
        attributes = []
        if cluster > 1:
            attributes.append(LaunchAttribute(CLUSTER, 0, (ctypes.c_uint32 * 16)(cluster, 1, 1)))
        if programmatic:
            attributes.append(LaunchAttribute(PROGRAMMATIC, 0, (ctypes.c_uint32 * 16)(1)))
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        return LaunchConfig(grid, 1, 1, block, 1, 1, shared, stream, (LaunchAttribute * len(attributes))(*attributes), len(attributes))

    def launch(self, name: str, grid: int, block: int, shared: int, arguments: list, cluster: int = 1, programmatic: bool = False) -> None:
        """`cluster`: 1 also where it is an attribute of the kernel."""
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.pointer(a), ctypes.c_void_p).value for a in arguments)
        )
        config = self.config(grid, block, shared, cluster, programmatic)
        self.call("cuLaunchKernelEx", ctypes.byref(config), self.kernel(name, shared), pointers, None)

    def clusters(self, cluster: int) -> int:
        """How many clusters of so many CTAs, each of which takes an SM, run at the same time."""
        if cluster == 1:
            return SMS
        tile = TILES["256x256_x2"] if cluster == 4 else TILES["256x256"] if cluster == 2 else TILES["swapped_64"]
        name = f"twin_{next(name for name, of in TILES.items() if of == tile)}"
        found = ctypes.c_int()
        config = self.config(cluster * SMS, THREADS, tile.shared, cluster, False)
        self.call("cuOccupancyMaxActiveClusters", ctypes.byref(found), self.kernel(name, tile.shared), ctypes.byref(config))
        return found.value

    def map(self, element: int, swizzled: bool, tensor, sizes, strides, box, promotion: int = 2):
        """A CUtensorMap as a kernel's argument. `promotion`: CUtensorMapL2promotion, of 128 bytes as the launchers'."""
        rank = len(sizes)
        memory = ctypes.create_string_buffer(192)
        at = ceil_div(ctypes.addressof(memory), 64) * 64
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(at), element, rank, ctypes.c_void_p(tensor.data_ptr()),
                  (ctypes.c_uint64 * rank)(*sizes), (ctypes.c_uint64 * (rank - 1))(*strides),
                  (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*([1] * rank)), 0,
                  3 if swizzled else 0, promotion, 0)  # fmt: skip
        encoded = (ctypes.c_uint64 * 16)()
        ctypes.memmove(encoded, at, 128)
        return encoded

    def time_us(self, launches: list) -> float:
        """Of one launch: a graph of all, in a stream, the median of several runs."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        launches[0]()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        times = []
        for _ in range(SAMPLES + 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / len(launches))
        return statistics.median(times[1:])

    def ghz(self) -> float:
        clocks = self.torch.zeros(2, dtype=self.torch.int64, device="cuda")
        for _ in range(2):
            self.launch("twin_clock", SMS, 128, 0,
                        [ctypes.c_uint64(clocks.data_ptr()), ctypes.c_uint64(2_000_000)])  # fmt: skip
        self.torch.cuda.synchronize()
        return int(clocks[0]) / int(clocks[1])


class Matrix:
    """Packed data and block scales of [rows, k]; what they hold does not matter."""

    def __init__(self, torch, rows: int, k: int) -> None:
        self.rows, self.k = rows, k
        self.data = torch.zeros(rows * k // 2, dtype=torch.uint8, device="cuda")
        self.atoms = ceil_div(k, ATOM_K)
        self.scales = torch.zeros(ceil_div(rows, 128) * self.atoms * 512, dtype=torch.uint8, device="cuda")

    def maps(self, gpu: Gpu, rows: int, scale_rows: int = 0, atoms: int = 4, promotion: int = 2):
        """For loads of so many rows, and of the scales of `scale_rows`, or else as many, for `atoms` times 64 of K."""
        data = gpu.map(U8, True, self.data, (self.k // 2, self.rows), (self.k // 2,), (128, rows), promotion)
        scales = gpu.map(U16, False, self.scales, (256, self.atoms, ceil_div(self.rows, 128)), (512, self.atoms * 512),
                         (256, atoms, ceil_div(scale_rows or rows, 128)), promotion)  # fmt: skip
        return data, scales


def time_twin(gpu: Gpu, run: Run, launches: int = 20, promotion: int = 2) -> float:
    """Of one launch, from the end of the one before to its own; of a chained one behind a programmatic launch."""
    tile, m, n, k = TILES[run.tile], run.m, run.n, run.k
    torch = gpu.torch
    a = Matrix(torch, m, k)
    weight_bytes = n * k * 9 // 16
    copies = ceil_div(COLD_BYTES, weight_bytes) if run.cold else 1
    weights = [Matrix(torch, n, k) for _ in range(min(copies, 64))]
    output = torch.empty(m * n, dtype=torch.bfloat16, device="cuda")
    scale = torch.ones(2, device="cuda")
    d = ctypes.c_uint64(output.data_ptr()) if tile.swapped else gpu.map(BF16, True, output, (n, m), (n * 2,), (64, 32))
    rows, columns = (n, m) if tile.swapped else (m, n)
    clusters = ceil_div(rows, tile.rows * tile.ctas * tile.columns_shared) * ceil_div(columns, tile.columns * tile.rows_shared)
    ctas = tile.cluster * run.splits
    grid = ctas * (clusters if run.splits > 1 else min(clusters, gpu.clusters(tile.cluster)))
    grid = min(grid, run.most_ctas or grid)
    pointer, chained = ctypes.c_uint64(scale.data_ptr()), run.chained
    calls = []
    for i in range(max(launches, len(weights))):
        b = weights[i % len(weights)]
        left, right = (b, a) if tile.swapped else (a, b)
        maps = (left.maps(gpu, tile.rows // tile.rows_shared, TILE_ROWS, 4 // tile.rows_shared, promotion=promotion),
                right.maps(gpu, tile.columns // tile.ctas // tile.columns_shared, *tile.scales_loaded, promotion=promotion))
        arguments = [maps[0][0], maps[1][0], maps[0][1], maps[1][1], d, pointer, pointer, ctypes.c_uint64(0),
                     *map(ctypes.c_uint32, (m, n, k, chained, run.clocks // 4))]  # fmt: skip
        calls.append(lambda arguments=arguments: gpu.launch(
            f"twin_{run.tile}", grid, THREADS, tile.shared, arguments, run.splits, chained))  # fmt: skip
    if not chained:
        return gpu.time_us(calls)

    def before() -> None:
        gpu.launch("twin_before", SMS, 128, 0, [ctypes.c_uint64(SPIN_NS)], programmatic=True)

    return gpu.time_us([both for call in calls for both in (before, call)]) * 2 - gpu.time_us([before] * 64)


def time_grouped_up(gpu: Gpu, m: int, width: int, k: int, clocks: int, cold: bool) -> float:
    """Of moe_grouped_up, all of whose rows have the same expert."""
    torch = gpu.torch
    a = Matrix(torch, m, k)
    weights = [Matrix(torch, 2 * width, k) for _ in range(ceil_div(COLD_BYTES, 2 * width * k * 9 // 16) if cold else 1)]
    y = Matrix(torch, m, width)
    scale, experts = torch.ones(2, device="cuda"), torch.zeros(ceil_div(m, 128), dtype=torch.int32, device="cuda")
    grid = min(ceil_div(m, 128) * ceil_div(width, 128), SMS)
    calls = []
    for i in range(max(20, len(weights))):
        maps = (*a.maps(gpu, TILE_ROWS), *weights[i % len(weights)].maps(gpu, TILE_ROWS))
        arguments = [maps[0], maps[2], maps[1], maps[3],
                     *(ctypes.c_uint64(of.data_ptr()) for of in (y.data, y.scales, scale, experts)),
                     *map(ctypes.c_uint32, (m, width, k, clocks // 4))]  # fmt: skip
        calls.append(lambda arguments=arguments: gpu.launch("twin_grouped_up", grid, THREADS, GROUPED_UP_SHARED, arguments))
    return gpu.time_us(calls)


def latency(gpu: Gpu) -> dict[str, int]:
    """Clocks of one TMA load that is alone, from memory and from L2."""
    torch = gpu.torch
    count, k = 64, 14336
    data = torch.zeros(count * 128 * k // 2, dtype=torch.uint8, device="cuda")
    flush = torch.empty(COLD_BYTES, dtype=torch.uint8, device="cuda")
    clocks = torch.zeros(count, dtype=torch.int32, device="cuda")
    tensor = gpu.map(U8, True, data, (k // 2, count * 128), (k // 2,), (128, 128))
    arguments = [tensor, ctypes.c_uint64(clocks.data_ptr()), ctypes.c_uint32(count)]
    found = {}
    for name in ("memory", "l2"):
        if name == "memory":
            flush.fill_(1)
            torch.cuda.synchronize()
        gpu.launch("twin_latency", 1, 32, 128 * 128 + 64, arguments)
        torch.cuda.synchronize()
        found[name] = int(statistics.median(clocks.tolist()[1:]))
    return found


def loads(gpu: Gpu, row_tiles: int, column_tiles: int, k: int, with_scales: bool, cold: bool) -> float:
    """Clocks of the slowest SM for a stage of a 128 x 128 tile's loads, 36,864 bytes with scales and 32,768 without, from L2
    or from memory."""
    torch = gpu.torch
    a, b = Matrix(torch, row_tiles * 128, k), Matrix(torch, column_tiles * 128, k)
    ctas, shared, stages = row_tiles * column_tiles, TILES["128x128"].shared, ceil_div(k, STAGE_K)
    clocks = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    rows, row_scales = a.maps(gpu, 128)
    columns, column_scales = b.maps(gpu, 128)

    flush = torch.empty(COLD_BYTES, dtype=torch.uint8, device="cuda")

    def once(count: int) -> int:
        if cold:
            flush.fill_(1)
        arguments = [rows, columns, row_scales, column_scales, ctypes.c_uint64(clocks.data_ptr()),
                     *map(ctypes.c_uint32, (row_tiles, count, stages, int(with_scales)))]  # fmt: skip
        gpu.launch("twin_loads", ctas, 64, shared, arguments)
        torch.cuda.synchronize()
        return int(clocks.max())

    once(20)
    few, many = (20, stages) if cold else (100, 400)
    return (statistics.median(once(many) for _ in range(5)) - statistics.median(once(few) for _ in range(5))) / (many - few)


def boxes(gpu: Gpu, ctas: int, rows: int, in_flight: int, shared: bool) -> float:
    """Clocks of the slowest SM for a box of `rows` by 128 bytes from L2, with so many bytes in flight: of one matrix for all SMs, or
    of a matrix for each."""
    torch = gpu.torch
    row_bytes, own = 1024, 0 if shared else 128
    data = torch.zeros((ctas if own else 1) * 128 * row_bytes, dtype=torch.uint8, device="cuda")
    clocks = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    tensor = gpu.map(U8, True, data, (row_bytes, data.numel() // row_bytes), (row_bytes,), (128, rows))
    depth = min(max(in_flight // (rows * 128), 1), 32)

    def once(count: int) -> int:
        arguments = [tensor, ctypes.c_uint64(clocks.data_ptr()), *map(ctypes.c_uint32, (rows, depth, count, own, row_bytes))]
        gpu.launch("twin_boxes", ctas, 64, depth * rows * 128, arguments)
        torch.cuda.synchronize()
        return int(clocks.max())

    once(100)
    return (statistics.median(once(1100) for _ in range(5)) - statistics.median(once(100) for _ in range(5))) / 1000


# CTAs, rows of a box, bytes in flight, the same boxes for all.
BOXES = (
    *((ctas, rows, 131072, False) for ctas in (1, SMS) for rows in (8, 16, 32, 64, 128)),
    *((SMS, rows, 131072, True) for rows in (32, 128)),
    *((ctas, 128, in_flight, False) for ctas in (1, SMS) for in_flight in (16384, 32768, 65536, 196608)),
)  # fmt: skip


# Row tiles, column tiles, k, with scales, from memory.
LOADS = (
    *((1, 1, 7168, scales, False) for scales in (False, True)),
    *((r, c, 7168, True, False) for r, c in ((1, 17), (8, 4), (8, 7), (11, 6), (12, 8))),
    *((12, 11, 7168, scales, False) for scales in (False, True)),
    *((1, 1, k, scales, True) for k in (14336, 28672) for scales in (False, True)),
    *((r, c, 28672, True, True) for r, c in ((1, 17), (1, 56), (1, 132), (8, 7), (12, 11))),
)  # fmt: skip

# A wave of each tile but for those of one row tile, on SMS SMs: m, n.
WAVES = {"128x128": (1536, 1408), "128x256": (1536, 2816), "256x256": (1536, 2816), "256x128": (1536, 1408), "256x256_x2": (1536, 2560),
         "256x192_x2": (1536, 1920), "256x128_x2": (1536, 1280), "256x256_x4": (1536, 2560), "256x192_x4": (1536, 1920),
         **{f"swapped_{columns}": (columns, 16896) for columns in (16, 64, 128, 256)}}  # fmt: skip
LARGE = ("128x128", "128x256", "256x256", "256x128", "256x256_x2", "256x192_x2", "256x128_x2", "256x256_x4", "256x192_x4")
B200_CLOCKS = {"128x128": 256, "128x256": 512, "256x256": 512, "256x128": 256, "256x256_x2": 512, "256x192_x2": 384, "256x128_x2": 256,
               "256x256_x4": 512, "256x192_x4": 384, "swapped_16": 144, "swapped_32": 160,
               "swapped_64": 192, "swapped_128": 256, "swapped_256": 512, "swapped_64_half": 192}  # fmt: skip


def on_b200(tile: str, m: int, n: int, k: int = 7168, **more) -> Run:
    """With the clocks that MMAs take on sm_100a, and weights from memory."""
    return Run(tile, m, n, k, B200_CLOCKS[tile], True, **more)


RUNS = (
    # ingress: a full wave, from L2, no MMA; two K, whose difference is stages
    *(Run(tile, m, n, k, 0, False) for tile, (m, n) in WAVES.items() for k in (1792, 3584, 7168)),
    # ingress of few CTAs
    *(Run("128x128", 128, 128 * ctas, k, 0, False) for ctas in (1, 16, 32, 66) for k in (3584, 14336)),
    *(Run("256x256", 256, 256 * ctas, k, 0, False) for ctas in (1, 16, 33) for k in (3584, 14336)),
    *(Run("256x256_x2", 256, 512 * ctas, k, 0, False) for ctas in (1, 8, 16) for k in (3584, 14336)),
    # MMA-bound and between
    *(Run(tile, *WAVES[tile], 7168, clocks, False) for tile in LARGE for clocks in (512, 1024, 1536, 2048)),
    *(Run("128x128", 1536, 1408 * 4, 7168, clocks, False) for clocks in (512, 2048)),
    # the epilogue: one stage a tile, 1, 2 and 8 tiles a CTA
    *(Run(tile, m, n * tiles, 256, 0, False) for tile, (m, n) in WAVES.items() for tiles in (1, 2, 8)),
    # the same, of so few CTAs that neither L2 nor memory limits it: 16 and 32 tiles a CTA, or a pair
    *(Run(tile, 8 * TILE_ROWS * TILES[tile].ctas, TILES[tile].columns * tiles, 64, 0, False, most_ctas=8 * TILES[tile].ctas)
      for tile in ("128x128", "128x256", "256x256") for tiles in (16, 32)),
    *(Run(tile, TILES[tile].columns, 8 * TILE_ROWS * tiles, 64, 0, False, most_ctas=8)
      for tile in ("swapped_16", "swapped_64", "swapped_256") for tiles in (16, 32)),
    # few tokens, and K split
    *(on_b200("swapped_16", m, n, splits=splits) for m in (1, 16) for n, all_splits in (
        (576, (1, 2, 4, 8)), (2112, (1, 2, 4, 6)), (4096, (1, 2, 4)), (7168, (1, 2)), (16896, (1,))) for splits in all_splits),
    *(on_b200("swapped_64", 64, n, splits=splits) for n, all_splits in (
        (576, (1, 2, 4, 8)), (2112, (1, 2, 4, 6)), (4096, (1, 2, 4)), (7168, (1, 2)), (16896, (1,))) for splits in all_splits),
    *(on_b200(f"swapped_{m}", m, n, splits=splits) for m in (32, 128, 256) for n, splits in ((2112, 1), (2112, 4), (7168, 1), (7168, 2))),
    *(on_b200("swapped_64_half", m, n, splits=splits) for m in (16, 64) for n, splits in ((576, 8), (2112, 1), (2112, 3), (4096, 1), (7168, 1))),
    # behind a programmatic launch
    *(on_b200("swapped_64_half", 64, n, chained=True) for n in (2112, 7168)),
    *(on_b200("swapped_16", 16, n, splits=splits, chained=True) for n, splits in ((2112, 1), (2112, 4), (7168, 1), (7168, 2))),
    *(on_b200("swapped_64", 64, n, splits=splits, chained=True) for n, splits in ((2112, 1), (2112, 4), (7168, 1), (7168, 2))),
    *(on_b200(tile, 256, 7168, chained=True) for tile in ("128x128", "256x128", "256x256_x2")),
    # which tile is the fastest
    *(on_b200(tile, m, n) for n in (576, 2112, 4096, 7168) for m in (256, 1024, 4096) for tile in LARGE),
    *(on_b200(tile, m, 7168, 18432) for m in (1024, 4096) for tile in ("256x256", "256x256_x2")),
    *(on_b200(tile, m, n, k) for tile in LARGE[2:] for m, n, k in (
        (512, 4096, 14336), (1024, 1536, 7168), (4096, 1536, 7168), (1024, 6144, 4096), (1024, 5120, 8192), (512, 10240, 5120))),
)  # fmt: skip


# Of moe_grouped_up: m, width, k, MMA clocks of a stage, weights from memory. The epilogue, as above; ingress; whole ones.
GROUPED_UP = (
    *((1536, 1408 * tiles, 256, 0, False) for tiles in (1, 2, 8)),
    *((1536, 1408, k, 0, False) for k in (1792, 3584, 7168)),
    *((m, 2048, 7168, 512, True) for m in (256, 1024, 4096)),
)  # fmt: skip


def compiled(kept: Path | None) -> bytes:
    if kept:
        return kept.read_bytes()
    root = HERE.parents[1]
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder, "twin.cubin")
        subprocess.run(["nvcc", "-std=c++17", "-cubin", "-arch=sm_90a", f"-I{root}/kernels_src/nvfp4",
                        f"-I{root}/tests/gpu/support", "-o", to, HERE / "sm100_twin.cu"], check=True)  # fmt: skip
        return to.read_bytes()


def measured(gpu: Gpu) -> Iterator[dict]:
    yield results.row("clock", "GHz", gpu.ghz())
    for where, clocks in latency(gpu).items():
        yield results.row("one load of 16 KiB", "clocks", clocks, case=f"from {where}")
    for grid, shared in ((1, 0), (SMS, 0), (SMS, TILES["128x128"].shared)):
        launches = [lambda grid=grid, shared=shared: gpu.launch("twin_empty", grid, 192, shared, [])] * 200
        yield results.row("empty kernel", "us", gpu.time_us(launches), case=f"{grid} CTAs, {shared} shared bytes")
    for cluster in (2, 3, 4, 6, 8):
        yield results.row("clusters at the same time", "", gpu.clusters(cluster), case=f"of {cluster} CTAs")
    for ctas, rows, in_flight, shared in BOXES:
        case = f"{ctas} CTAs, {rows} rows, {in_flight} bytes in flight, {'the same for all' if shared else 'of their own'}"
        yield results.row("loads of a box of 128 bytes", "clocks", boxes(gpu, ctas, rows, in_flight, shared), case=case)
    for rows, columns, k, scales, cold in LOADS:
        case = f"{rows} x {columns} tiles, k {k}, {'with' if scales else 'without'} scales, from {'memory' if cold else 'L2'}"
        yield results.row("loads of a stage, 128x128", "clocks", loads(gpu, rows, columns, k, scales, cold), case=case)
    for run in RUNS:
        yield results.row(f"twin_{run.tile}", "us", time_twin(gpu, run), case=str(run))
        gpu.torch.cuda.empty_cache()
    for m, width, k, clocks, cold in GROUPED_UP:
        case = str(Run("grouped_up", m, 2 * width, k, clocks, cold))
        yield results.row("twin_grouped_up", "us", time_grouped_up(gpu, m, width, k, clocks, cold), case=case)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cubin", type=Path, help="of sm100_twin.cu, for sm_90a")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="the folder of the file")
    arguments = parser.parse_args()
    gpu = Gpu(compiled(arguments.cubin))
    rows = []
    for row in measured(gpu):
        rows.append(row)
        print(row["what"], row.get("case", ""), row["value"], row["unit"], sep="  ", flush=True)
    device = results.devices()
    run = results.record("times", device=device, commit=results.commit_of(HERE), command="tests/bench/sm100_twin.py",
                         software={"torch": gpu.torch.__version__}, results=rows)  # fmt: skip
    path = arguments.output / results.file_name(device, "twin")
    results.write(path, run)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
