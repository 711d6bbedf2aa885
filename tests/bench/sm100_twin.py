# SPDX-License-Identifier: Apache-2.0
"""Runs the timing twin of the sm_100a GEMMs on an sm_90a GPU: the shipped source with TMA, mbarriers, schedule and epilogue
as they are, and MMAs that are arrivals after a number of clocks (sm100_twin.cu). Writes h200-twin.json: constants of
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import results

U8, U16, BF16 = 0, 1, 9  # CUtensorMapDataType
TILE_ROWS, THREADS, STAGE_K, ATOM_K = 128, 224, 256, 64
SMS = 132
# Name: columns, swapped, dynamic shared memory (sm100_plan.hpp).
TILES = {
    "128x128": (128, False, 218112),
    "128x256": (256, False, 199680),
    "swapped": (64, True, 205824),
}
SAMPLES = 7
COLD_BYTES = 240 << 20  # of weights that take turns, so that none stays in L2


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


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

    def launch(self, name: str, grid: int, block: int, shared: int, arguments: list) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.pointer(a), ctypes.c_void_p).value for a in arguments)
        )
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        self.call("cuLaunchKernel", self.kernel(name, shared), grid, 1, 1, block, 1, 1, shared, stream,
                  pointers, None)  # fmt: skip

    def map(self, element: int, swizzled: bool, tensor, sizes, strides, box):
        """A CUtensorMap as a kernel's argument."""
        rank = len(sizes)
        memory = ctypes.create_string_buffer(192)
        at = ceil_div(ctypes.addressof(memory), 64) * 64
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(at), element, rank, ctypes.c_void_p(tensor.data_ptr()),
                  (ctypes.c_uint64 * rank)(*sizes), (ctypes.c_uint64 * (rank - 1))(*strides),
                  (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*([1] * rank)), 0,
                  3 if swizzled else 0, 2, 0)  # fmt: skip
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

    def maps(self, gpu: Gpu, rows: int):
        data = gpu.map(U8, True, self.data, (self.k // 2, self.rows), (self.k // 2,), (128, rows))
        scales = gpu.map(U16, False, self.scales, (256, self.atoms, ceil_div(self.rows, 128)),
                         (512, self.atoms * 512), (256, 4, ceil_div(rows, 128)))  # fmt: skip
        return data, scales


def time_twin(gpu: Gpu, tile: str, m: int, n: int, k: int, stage_clocks: int, cold: bool, launches: int = 20) -> float:
    columns_of_tile, swapped, shared = TILES[tile]
    torch = gpu.torch
    a = Matrix(torch, m, k)
    weight_bytes = n * k * 9 // 16
    copies = ceil_div(COLD_BYTES, weight_bytes) if cold else 1
    weights = [Matrix(torch, n, k) for _ in range(min(copies, 64))]
    output = torch.empty(m * n, dtype=torch.bfloat16, device="cuda")
    scale = torch.ones(2, device="cuda")
    box = (32, 64) if swapped else (64, 32)
    d = gpu.map(BF16, not swapped, output, (n, m), (n * 2,), box)
    rows, columns = (n, m) if swapped else (m, n)
    tiles = ceil_div(rows, TILE_ROWS) * ceil_div(columns, columns_of_tile)
    pointer = ctypes.c_uint64(scale.data_ptr())
    calls = []
    for i in range(max(launches, len(weights))):
        b = weights[i % len(weights)]
        left, right = (b, a) if swapped else (a, b)
        row_data, row_scales = left.maps(gpu, TILE_ROWS)
        column_data, column_scales = right.maps(gpu, columns_of_tile)
        arguments = [row_data, column_data, row_scales, column_scales, d, pointer, pointer, ctypes.c_uint64(0),
                     ctypes.c_uint32(m), ctypes.c_uint32(n), ctypes.c_uint32(k),
                     ctypes.c_uint32(stage_clocks // 4)]  # fmt: skip
        calls.append(lambda arguments=arguments: gpu.launch(f"twin_{tile}", min(tiles, SMS), THREADS, shared, arguments))
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
    ctas, shared, stages = row_tiles * column_tiles, TILES["128x128"][2], ceil_div(k, STAGE_K)
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


# Row tiles, column tiles, k, with scales, from memory.
LOADS = (
    *((1, 1, 7168, scales, False) for scales in (False, True)),
    *((r, c, 7168, True, False) for r, c in ((1, 17), (8, 4), (8, 7), (11, 6), (12, 8))),
    *((12, 11, 7168, scales, False) for scales in (False, True)),
    *((1, 1, k, scales, True) for k in (14336, 28672) for scales in (False, True)),
    *((r, c, 28672, True, True) for r, c in ((1, 17), (1, 56), (1, 132), (8, 7), (12, 11))),
)  # fmt: skip

# Tile, m, n, k, MMA clocks of a stage, weights from memory.
RUNS = (
    # ingress: a full wave, from L2, no MMA; two K, whose difference is stages
    *((tile, m, n, k, 0, False) for tile, m, n in (("128x128", 1536, 1408), ("128x256", 1536, 2816), ("swapped", 64, 16896))
      for k in (1792, 3584, 7168)),
    # ingress of few CTAs
    *(("128x128", 128, 128 * ctas, k, 0, False) for ctas in (1, 16, 32, 66) for k in (3584, 14336)),
    # MMA-bound and between
    *(("128x128", 1536, 1408, 7168, clocks, False) for clocks in (512, 1024, 1536, 2048)),
    *(("128x256", 1536, 2816, 7168, clocks, False) for clocks in (1024, 2048, 3072)),
    *(("128x128", 1536, 1408 * 4, 7168, clocks, False) for clocks in (512, 2048)),
    # the epilogue: one stage a tile, 2 and 8 tiles a CTA
    *(("128x128", 1536, 1408 * tiles, 256, 0, False) for tiles in (1, 2, 8)),
    *(("128x256", 1536, 2816 * tiles, 256, 0, False) for tiles in (1, 2, 8)),
    *(("swapped", 64, 16896 * tiles, 256, 0, False) for tiles in (1, 2, 8)),
    # decode, weights from memory
    *(("swapped", m, n, 7168, 128, True) for m in (1, 64) for n in (576, 2112, 4096, 7168, 16896)),
    # whole GEMMs, weights from memory
    *(("128x128", m, 7168, 7168, 256, True) for m in (256, 1024, 4096)),
    *(("128x256", m, 7168, 7168, 512, True) for m in (256, 1024, 4096)),
    # which tile is the fastest: MMA clocks as on sm_100a
    *((tile, m, n, 7168, clocks, True) for n in (576, 2112, 4096, 7168) for m in (128, 256, 512, 1024)
      for tile, clocks in (("swapped", 128), ("128x128", 256), ("128x256", 512)) if (m, n) not in ((256, 7168), (1024, 7168)) or tile == "swapped"),
    ("128x128", 4096, 7168, 7168, 512, True),  # the stage of a pair's CTA, but for 2 KB
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
    for grid, shared in ((1, 0), (SMS, 0), (SMS, TILES["128x128"][2])):
        launches = [lambda grid=grid, shared=shared: gpu.launch("twin_empty", grid, 192, shared, [])] * 200
        yield results.row("empty kernel", "us", gpu.time_us(launches), case=f"{grid} CTAs, {shared} shared bytes")
    for rows, columns, k, scales, cold in LOADS:
        case = f"{rows} x {columns} tiles, k {k}, {'with' if scales else 'without'} scales, from {'memory' if cold else 'L2'}"
        yield results.row("loads of a stage, 128x128", "clocks", loads(gpu, rows, columns, k, scales, cold), case=case)
    for tile, m, n, k, clocks, cold in RUNS:
        us = time_twin(gpu, tile, m, n, k, clocks, cold)
        case = f"m {m}, n {n}, k {k}, {clocks} clocks of MMA, weights from {'memory' if cold else 'L2'}"
        yield results.row(f"twin_{tile}", "us", us, case=case)
        gpu.torch.cuda.empty_cache()


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
