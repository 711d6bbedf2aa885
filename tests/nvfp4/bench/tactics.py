# SPDX-License-Identifier: Apache-2.0
"""Times every tactic of W4A4 and W4A16 GEMMs on this machine's GPU beside cuBLAS in bf16, and, where there are grouped GEMMs,
each of their kernels. Keeps nothing in a store.

usage: tactics.py --build FOLDER -o FOLDER [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import results

QUICK = ((4096, 4096), (7168, 7168))
SAMPLES = 5
# Of grouped GEMMs: rows of each expert, experts, n, k; those of DeepSeek-V3 and of Mixtral 8x7B.
GROUPED = tuple((rows, experts, n, k)
                for experts, shapes in ((256, ((4096, 7168), (7168, 2048))), (8, ((28672, 4096), (4096, 14336))))
                for n, k in shapes for rows in (128, 384, 1152))  # fmt: skip


class CuBlas:
    """bf16 weights [n, k], enough that none is in the cache at its turn."""

    def __init__(self, torch, tune, n: int, k: int):
        self.torch, self.tune, self.k = torch, tune, k
        cache = torch.cuda.get_device_properties().L2_cache_size
        copies = max(2, -(-4 * cache // (2 * n * k)))
        self.weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]

    def samples(self, m: int) -> list[float]:
        tokens = self.torch.randn(m, self.k, device="cuda", dtype=self.torch.bfloat16)
        output = self.torch.mm(tokens, self.weights[0].T)
        timer = self.tune.Timer(lambda i: self.torch.mm(tokens, self.weights[i % len(self.weights)].T, out=output))
        return [timer.sample() for _ in range(SAMPLES)]


def measure(torch, cukiln, tune, weights) -> list[dict]:
    rows = []
    with cukiln.Loader(memory_only=True) as loader:
        torch.zeros(1, device="cuda")  # makes a context current
        gemms = [tune.Gemm(loader, torch.cuda.current_device(), each) for each in tune.ACTIVATIONS]
        for n, k in weights:
            operands, cublas = [tune.Operands(gemm, n, k) for gemm in gemms], CuBlas(torch, tune, n, k)
            for m in tune.TOKENS:
                beside = cublas.samples(m)
                for gemm, operand in zip(gemms, operands):
                    chosen = gemm.chosen(m, n, k)
                    for i, tactic in enumerate(gemm.tactics(m, n, k)):
                        rows.append(results.row(
                            f"{tactic.kernel} by {tactic.splits}", "us", operand.time(m, i, float("inf")),
                            case=f"m {m}, n {n}, k {k}", baseline="cuBLAS bf16", baseline_samples=beside,
                            baseline_value=statistics.median(beside),
                            note="what is launched" if tactic == chosen else ""))  # fmt: skip
                print(f"  m {m}, n {n}, k {k}", file=sys.stderr)
            del operands, cublas
            torch.cuda.empty_cache()
    return rows


def measure_grouped(torch, kernels, tune, quick: bool) -> list[dict]:
    """Random data and ones as scales, whose values no kernel's time depends on; every row tile has an expert."""
    names = kernels.grouped()

    def operand(rows: int, k: int):
        scales = torch.full((-(-rows // 128) * -(-k // 64) * 512,), 0x38, device="cuda", dtype=torch.uint8)
        return torch.randint(256, (rows * k // 2,), device="cuda", dtype=torch.uint8), scales

    rows = []
    for of_expert, experts, n, k in (GROUPED[:: len(GROUPED) // 2] if quick else GROUPED) if names else ():
        m = of_expert * experts
        (a, a_scales), (b, b_scales) = operand(m, k), operand(experts * n, k)
        ones = torch.ones(experts, 2, device="cuda")
        row_experts = torch.arange(experts, device="cuda", dtype=torch.int32).repeat_interleave(of_expert // 128)
        output = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        for i, name in enumerate(names):
            timer = tune.Timer(lambda _: kernels("bench_grouped", kernels.stream(), i, output, a, a_scales, ones, b, b_scales, ones,
                                                 row_experts, m, n, k, experts))  # fmt: skip
            samples = [timer.sample() for _ in range(SAMPLES)]
            rows.append(results.row(name, "us", statistics.median(samples), samples, case=f"m {m}, n {n}, k {k}, {experts} experts"))
        print(f"  m {m}, n {n}, k {k}, {experts} experts", file=sys.stderr)
        del a, a_scales, b, b_scales, output
        torch.cuda.empty_cache()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="a build folder with libcukiln.so and cukiln_bench_gpu.so in bin/")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    arguments = parser.parse_args()
    programs = arguments.build.resolve() / "bin"
    os.environ["CUKILN_LIBRARY"] = str(programs / "libcukiln.so")
    sys.path.insert(0, str(results.REPOSITORY / "src" / "bindings" / "python"))
    import cukiln
    import torch
    from cukiln.torch import tune

    import gpu

    rows = measure(torch, cukiln, tune, QUICK if arguments.quick else tune.WEIGHTS)
    rows += measure_grouped(torch, gpu.Kernels(programs / "cukiln_bench_gpu.so"), tune, arguments.quick)
    device = results.devices() or {"name": torch.cuda.get_device_name(), "count": torch.cuda.device_count()}
    arguments.output.mkdir(parents=True, exist_ok=True)
    run = results.record("times", device=device, commit=results.commit_of(programs),
                         command="tests/nvfp4/bench/tactics.py" + (" --quick" if arguments.quick else ""),
                         software={"torch": torch.__version__}, results=rows)  # fmt: skip
    results.write(arguments.output / results.file_name(device, "tactics"), run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
