# SPDX-License-Identifier: Apache-2.0
"""Measures every way to compute `nvfp4::linear_gemm` on this machine's GPU, and keeps the fastest
in the store, from which every process that starts later takes them.

  python -m cukiln.torch.tune 7168x7168 18432x7168    weights [n, k]: features out x in
  python -m cukiln.torch.tune                         those of common models; takes some minutes
  python -m cukiln.torch.tune --activations bf16      only W4A16, as a layer's `activations`
  python -m cukiln.torch.tune --store DIR 7168x7168   in another store than that of the settings

A tactic is kept only if its results are right: those of launches in a row are the same bytes, and
near the product in float32. One whose results are not is left out, with a warning that names it.

Run it before the processes of a job start: each reads the store once, and all of them should find
the same. `cukiln ls --blobs --name cukiln.tactics` lists what was kept, `cukiln show` prints it,
`cukiln rm` removes it, and bundles carry it to machines with the same card.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, c_void_p
from dataclasses import dataclass

import torch

from .. import Error, IoError, Loader, _library, _shipped, default_loader
from .._timer import Timer
from ._checkpoints import dequantize
from ._weights import BLOCK, unswizzle, up

ACTIVATIONS = ("nvfp4", "bf16")  # W4A4 and W4A16: both have tactics of their own

# Weights [n, k] of DeepSeek-V3, Llama 3 8B and 70B, Qwen3 32B, and squares.
WEIGHTS = (
    *((4096, 4096), (7168, 7168), (8192, 8192)),
    *((7168, 16384), (24576, 1536), (32768, 512), (36864, 7168), (7168, 18432), (18432, 7168)),
    *((4096, 7168), (7168, 2048)),
    *((6144, 4096), (28672, 4096), (4096, 14336)),
    *((10240, 8192), (57344, 8192), (8192, 28672)),
    *((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)),
)
# Up to each of the first three, sm_90 has tiles of their own: no row serves both sides of one. Then
# as tiles come, in steps of 32, and sums of them.
TOKENS = (
    *(8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048),
    *(3072, 4096),
)

_SAMPLES = 5
_HOPELESS = 1.3  # times as slow as the fastest so far: one sample is enough
_MOST_ERROR = 0.004  # of a result, relative to float32; that of rounding to bf16 is 0.0017
_LAUNCHES = 1000  # whose results are compared, where they need no more bytes than this:
_COMPARED_BYTES = 1 << 28
_ROWS = 4096  # of weights that are dequantised at the same time


@dataclass(frozen=True)
class Tactic:
    kernel: str
    splits: int


@dataclass(frozen=True)
class Measured:
    """The fastest tactic for weights [n, k], with more tokens than the row before, up to m."""

    n: int
    k: int
    m: int
    tactic: Tactic
    microseconds: float
    before: float  #: microseconds of the tactic that was launched so far


class Gemm:
    """The launcher of one device, by <cukiln/nvfp4/nvfp4.h>."""

    def __init__(self, loader: Loader, device: int, activations: str = "nvfp4") -> None:
        self._loader = loader
        self.activations = activations
        self._functions = _shipped.library()
        self._handle = c_void_p()
        create = {
            "nvfp4": self._functions.cukiln_nvfp4_gemm_create,
            "bf16": self._functions.cukiln_nvfp4_w4a16_gemm_create,
        }[activations]
        _library.check(create(loader.handle, device, byref(self._handle)))
        weakref.finalize(self, self._functions.cukiln_nvfp4_gemm_destroy, self._handle)

    def tactics(self, m: int, n: int, k: int) -> list[Tactic]:
        count = self._functions.cukiln_nvfp4_gemm_tactics(self._handle, m, n, k)
        return [self._named(m, n, k, i) for i in range(count)]

    def chosen(self, m: int, n: int, k: int) -> Tactic:
        """What a launch takes."""
        return self._named(m, n, k, -1)

    def workspace_bytes(self, m: int, n: int, k: int) -> int:
        return self._functions.cukiln_nvfp4_gemm_workspace_bytes(self._handle, m, n, k)

    def launch(self, call: _shipped.GemmCall) -> None:
        _library.check(self._functions.cukiln_nvfp4_gemm_launch(self._handle, byref(call)))

    def keep(self, measured: Iterable[Measured]) -> None:
        """In the store, in place of what it has for the same n and k."""
        rows = [
            _shipped.MeasuredGemm(
                each.n,
                each.k,
                each.m,
                max(1, round(each.microseconds * 1000)),
                (each.tactic.kernel.encode(), each.tactic.splits),
            )
            for each in measured
        ]
        listed = (_shipped.MeasuredGemm * len(rows))(*rows)
        _library.check(
            self._functions.cukiln_nvfp4_gemm_save_tactics(
                self._handle, self._loader.handle, listed, len(rows)
            )
        )

    def _named(self, m: int, n: int, k: int, tactic: int) -> Tactic:
        name = _shipped.Tactic()
        _library.check(
            self._functions.cukiln_nvfp4_gemm_tactic(self._handle, m, n, k, tactic, byref(name))
        )
        return Tactic(name.kernel.decode(), name.splits)


class Operands:
    """Random operands of weights [n, k], enough weights that none is in the cache at its turn."""

    def __init__(self, gemm: Gemm, n: int, k: int) -> None:
        self._gemm, self._n, self._k = gemm, n, k
        cache = torch.cuda.get_device_properties().L2_cache_size
        copies = max(2, min(64, -(-4 * cache // (n * k * 9 // 16))))
        self._weights = [self._matrix(n, k) for _ in range(copies)]
        self._global_scale = torch.ones(2, device="cuda")
        self._tokens: tuple[int, tuple[torch.Tensor, ...]] = (0, ())

    def time(self, m: int, tactic: int, best: float) -> float:
        """Microseconds; of one sample if that is much more than `best`."""
        if self._tokens[0] != m:
            workspace = self._gemm.workspace_bytes(m, self._n, self._k)
            output = torch.empty(m, self._n, device="cuda", dtype=torch.bfloat16)
            space = torch.zeros(max(16, workspace), device="cuda", dtype=torch.uint8)
            self._tokens = m, (*self._a(m), output, space)
        timer = Timer(lambda i: self._launch(i, tactic))
        first = timer.sample()
        if first > _HOPELESS * best:
            return first
        return statistics.median([first, *(timer.sample() for _ in range(_SAMPLES - 1))])

    def problem(self, m: int, tactic: int) -> str:
        """What is wrong with the results of launches in a row; "" if nothing is."""
        count = max(8, min(_LAUNCHES, _COMPARED_BYTES // (2 * m * self._n)))
        outputs = torch.empty(count, m, self._n, device="cuda", dtype=torch.bfloat16)
        for output in outputs:
            self._launch(0, tactic, output)
        return difference(outputs, self._product(m))

    def _product(self, m: int) -> torch.Tensor:
        """Of the tokens and the first weights, in float32."""
        _, (a, scales, *_) = self._tokens
        if self._gemm.activations == "nvfp4":
            a = dequantized(a, scales, m, self._k)
        data, scales = self._weights[0]
        k, parts = self._k, []
        for first in range(0, self._n, _ROWS):
            rows = min(_ROWS, self._n - first)
            of_rows = data[first * k // 2 :], scales[first * up(k // BLOCK, 4) :]
            parts.append(a.float() @ dequantized(*of_rows, rows, k).T)
        return torch.cat(parts, 1)

    def _launch(self, i: int, tactic: int, into: torch.Tensor | None = None) -> None:
        m, (a, scales, output, space) = self._tokens
        output = output if into is None else into
        b_data, b_scales = self._weights[i % len(self._weights)]
        self._gemm.launch(
            _shipped.GemmCall(
                stream=torch.cuda.current_stream().cuda_stream,
                m=m,
                n=self._n,
                k=self._k,
                output=output.data_ptr(),
                a_data=a.data_ptr(),
                a_scales=scales.data_ptr(),
                a_global_scale=self._global_scale.data_ptr(),
                b_data=b_data.data_ptr(),
                b_scales=b_scales.data_ptr(),
                b_global_scale=self._global_scale.data_ptr(),
                workspace=space.data_ptr(),
                workspace_bytes=space.numel(),
                constant_b=1,
                tactic=tactic,
                a_bf16=a.data_ptr(),  # or a_data: a launcher reads one of them
            )
        )

    def _a(self, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Data and block scales, or bf16 and nothing."""
        if self._gemm.activations == "nvfp4":
            return self._matrix(m, self._k)
        a = torch.randn(m, self._k, device="cuda", dtype=torch.bfloat16)
        return a, torch.empty(0, device="cuda", dtype=torch.uint8)

    @staticmethod
    def _matrix(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        data = torch.randint(0, 256, (rows * columns // 2,), device="cuda", dtype=torch.uint8)
        atoms = -(-rows // 128) * -(-columns // 64)
        scales = torch.randint(0x30, 0x48, (atoms * 512,), device="cuda", dtype=torch.uint8)
        return data, scales


def dequantized(data: torch.Tensor, scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The first rows, in float32, of a matrix as the kernels read it, whose decode scale is 1."""
    blocks = columns // BLOCK
    of_rows = scales[: up(rows, 128) * up(blocks, 4)].view(up(rows, 128), up(blocks, 4))
    data = data[: rows * columns // 2].view(rows, columns // 2)
    return dequantize(data, unswizzle(of_rows, rows, blocks))


def difference(outputs: torch.Tensor, expected: torch.Tensor) -> str:
    """What is wrong with bf16 results of launches of one kernel, near `expected`; "": nothing."""
    error = float((outputs[0].float() - expected).norm() / expected.norm())
    if not error <= _MOST_ERROR:
        return f"its relative error is {error:.2g}"
    bits = outputs.view(torch.int16)
    differ = int((bits != bits[0]).flatten(1).any(1).sum())
    if differ:
        return f"of {len(outputs)} launches {differ} gave other results than the first"
    return ""


def all_times(
    gemm: Gemm, m: int, n: int, k: int, time: Callable[[int, int, float], float]
) -> dict[Tactic, float]:
    """Of every tactic, in the order of the launcher. `time(m, tactic, best)` is in microseconds."""
    found: dict[Tactic, float] = {}
    for i, tactic in enumerate(gemm.tactics(m, n, k)):
        found[tactic] = time(m, i, min(found.values(), default=float("inf")))
    return found


def fastest(
    gemm: Gemm,
    n: int,
    k: int,
    time: Callable[[int, int, float], float],
    problem: Callable[[int, int], str],
) -> Iterator[Measured]:
    """The fastest tactic whose results are right, for each number of tokens.

    `time(m, tactic, best)` is in microseconds, `problem(m, tactic)` says what is wrong with its
    results.
    """
    for m in TOKENS:
        times = all_times(gemm, m, n, k, time)
        tactics = list(times)
        for best in sorted(tactics, key=times.__getitem__):
            if not (wrong := problem(m, tactics.index(best))):
                yield Measured(n, k, m, best, times[best], times[gemm.chosen(m, n, k)])
                break
            warnings.warn(
                f"{best.kernel} by {best.splits} is left out for {n}x{k}, {m} tokens: {wrong}. "
                "Report it, with the card and its driver",
                RuntimeWarning,
                stacklevel=2,
            )


def tune(
    weights: Iterable[tuple[int, int]] = WEIGHTS,
    *,
    loader: Loader | None = None,
    activations: Iterable[str] = ACTIVATIONS,
    keep: bool = True,
    report: Callable[[Measured], object] = lambda measured: None,
) -> list[Measured]:
    """Measures on the current CUDA device, for each of the weights [n, k] and of the activations,
    "nvfp4" (W4A4) or "bf16" (W4A16), and keeps what is fastest in the store of the loader (the
    default loader's) as soon as these weights are done. A tactic with wrong results is left out,
    with a warning.

    `report` is called with each row. Errors: InvalidArgumentError (n is no multiple of 8, k none of
    32), IoError (there is no store on disk, or it cannot be written); those of a compile.
    """
    wanted = sorted(set(weights))
    torch.zeros(1, device="cuda")  # makes a context current
    chosen = default_loader() if loader is None else loader
    device = torch.cuda.current_device()
    gemms = [Gemm(chosen, device, each) for each in activations]
    measured: list[Measured] = []
    for n, k in wanted:
        for gemm in gemms:
            operands = Operands(gemm, n, k)
            rows = []
            for row in fastest(gemm, n, k, operands.time, operands.problem):
                report(row)
                rows.append(row)
            del operands
            torch.cuda.empty_cache()
            if keep:
                gemm.keep(rows)
            measured += rows
    return measured


def weights_of(text: str) -> tuple[int, int]:
    n, x, k = text.partition("x")
    if not (x and n.isdecimal() and k.isdecimal() and int(n) and int(k)) or int(n) % 8 or int(k) % 32:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected NxK, as 7168x7168; N is a multiple of 8, K of 32"
        )
    return int(n), int(k)


def line(row: Measured) -> str:
    return (
        f"{row.n}x{row.k}, {row.m:4} tokens: {row.microseconds:.1f} us, {row.tactic.kernel} "
        f"by {row.tactic.splits}; was {row.before:.1f} us"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cukiln.torch.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("weights", nargs="*", type=weights_of, metavar="NxK", help="out x in features")
    parser.add_argument("--activations", choices=ACTIVATIONS, help="only these; both if not given")
    parser.add_argument("--store", metavar="DIR", help="where the tactics are kept")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("error: PyTorch sees no GPU: run this where the model will run", file=sys.stderr)
        return 3
    try:
        with Loader(store=given.store) as loader:
            rows = tune(
                given.weights or WEIGHTS,
                loader=loader,
                activations=[given.activations] if given.activations else ACTIVATIONS,
                report=lambda row: print(line(row), file=sys.stderr),
            )
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 4 if isinstance(error, IoError) else 1
    shapes = len({(row.n, row.k) for row in rows})
    print(f"saved {len(rows)} tactics of {shapes} weights; processes that start now take them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
