# SPDX-License-Identifier: Apache-2.0
"""Measures the overhead of calling an op that C++ registered, beside Python's @torch.library.custom_op.

Both take (x, runner_id, out_features), find the runner and allocate the result. Nothing is computed,
because x has no rows. Prints {"ours_us": [...], "custom_op_us": [...], "version": ...}, a number a round
in turns; says why it cannot run and exits with 3.
"""

import json
import sys
import time
from collections.abc import Callable

CALLS = 5000


def main(rounds: int) -> int:
    try:
        import cukiln.torch
        import torch
    except ImportError as missing:
        print(missing, file=sys.stderr)
        return 3
    torch.set_num_threads(1)
    data, scales = (torch.zeros(shape, dtype=torch.uint8) for shape in ((8, 16), (128, 4)))
    runner = cukiln.torch.LinearRunner(data, scales, torch.ones(2))
    runners = {runner.runner_id: runner}

    @torch.library.custom_op("cukiln_bench::linear_gemm", mutates_args=())
    def in_python(x: torch.Tensor, runner_id: int, out_features: int) -> torch.Tensor:
        assert runners[runner_id].out_features == out_features
        return x.new_empty((x.shape[0], out_features))

    x = torch.empty(0, 32, dtype=torch.bfloat16)

    def measure(op: Callable[..., torch.Tensor]) -> float:
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            op(x, runner.runner_id, 8)
        return (time.perf_counter_ns() - start) / CALLS / 1e3

    ops = {"ours_us": torch.ops.nvfp4.linear_gemm, "custom_op_us": torch.ops.cukiln_bench.linear_gemm}
    for op in ops.values():
        measure(op)
    times: dict[str, list[float]] = {name: [] for name in ops}
    for _ in range(rounds):
        for name, op in ops.items():
            times[name].append(measure(op))
    print(json.dumps({**times, "version": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
