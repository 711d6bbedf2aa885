# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/bench-gpu. A part yields Entries: a launch of cukiln's, the baseline's, and the bytes and
operations that the computation needs at least. Both are timed alternately in one run, over rotating buffers, so that
data comes from memory and not from the cache. Where a copy is the baseline, results go to memory too."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flashinfer_sampling
import humming_gemm
import results
import torch
from roofline import Measured

sys.path.insert(0, str(results.REPOSITORY / "src" / "bindings" / "python"))
from cukiln._timer import Timer

Launch = Callable[[int], None]  # the i-th, on the current stream
SampleRows = Callable[[torch.Tensor], object]

L2_BYTES = 60 << 20
# Large GEMMs take a card to its limit of power in less than a tenth of a second, after which its clock falls. Rows that are
# measured in turns begin rested, so that none depends on those before it.
REST_S = 0.25
ALONE_S = 1.0
ROTATED_BYTES = 4 * L2_BYTES  # of what is read, so that nothing is left of it when its turn comes


@dataclass
class Entry:
    kernel: str
    shape: str
    ours: Launch
    rival: str
    theirs: Launch
    bytes: float  # that must move, each once
    operations: float  # that must be done
    rate: str = "memory"  # or "matrix": which ceiling operations are held to
    alone: bool = False  # not in turns: each for so long by itself that the card's clock is steady


class Kernels:
    """The C functions of cukiln_bench_gpu.so, whose errors are raised."""

    def __init__(self, library: Path):
        self.functions = ctypes.CDLL(str(library))
        self.folder = library.parents[1]
        self("bench_open")

    def __call__(self, name: str, *arguments: torch.Tensor | int | None) -> None:
        function = getattr(self.functions, name)
        function.restype = ctypes.c_char_p
        problem = function(*(self.value(argument) for argument in arguments))
        if problem:
            raise RuntimeError(f"{name}: {problem.decode()}")

    @staticmethod
    def value(argument: torch.Tensor | int | None) -> ctypes.c_void_p | ctypes.c_int64:
        if argument is None:
            return ctypes.c_void_p()
        if isinstance(argument, torch.Tensor):
            return ctypes.c_void_p(argument.data_ptr())
        return ctypes.c_int64(argument)

    @staticmethod
    def stream() -> int:
        return torch.cuda.current_stream().cuda_stream

    def flashinfer(self) -> ModuleType | None:
        """FlashInfer's sampling functions, where they were carried."""
        folder = self.folder / "flashinfer"
        return flashinfer_sampling.load(folder) if folder.exists() else None

    def workspace(self, kernel: str, *sizes: int) -> torch.Tensor:
        function = getattr(self.functions, f"bench_{kernel}_workspace")
        function.restype = ctypes.c_size_t
        count = function(*(ctypes.c_int64(size) for size in sizes))
        return torch.zeros(max(count, 16), dtype=torch.uint8, device="cuda")

    def grouped(self) -> list[str]:
        """The kernels of bench_grouped; none on devices without grouped GEMMs."""
        function = self.functions.bench_grouped_kernel
        function.restype = ctypes.c_char_p
        names = []
        while name := function(ctypes.c_int64(len(names))):
            names.append(name.decode())
        return names


def carried_versions(kernels: Kernels) -> dict[str, str]:
    carried = {"flashinfer": flashinfer_sampling.VERSION, "humming": humming_gemm.VERSION}
    return {name: version for name, version in carried.items() if (kernels.folder / name).exists()}


def copies_for(bytes_each: int) -> int:
    return max(2, min(64, -(-ROTATED_BYTES // bytes_each)))


class Quantised:
    """A bf16 matrix and its NVFP4 quantisation."""

    def __init__(self, kernels: Kernels, rows: int, columns: int):
        self.bf16 = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
        self.data = torch.empty(rows * columns // 2, device="cuda", dtype=torch.uint8)
        atoms = -(-rows // 128) * -(-columns // 64)
        self.scales = torch.empty(atoms * 512, device="cuda", dtype=torch.uint8)
        self.global_scale = torch.empty(2, device="cuda")
        state = kernels.workspace("amax")
        stream = kernels.stream()
        kernels("bench_amax", stream, self.global_scale, self.bf16, rows, columns, state)
        kernels("bench_quantize", stream, self.data, self.scales, self.bf16, self.global_scale, rows, columns)
        torch.cuda.synchronize()


def w4a16_launch(kernels: Kernels, weights: list[Quantised], x: torch.Tensor, outputs: list[torch.Tensor]) -> Launch:
    (m, k), n = x.shape, outputs[0].shape[1]
    space = kernels.workspace("w4a16", m, n, k)

    def launch(i: int) -> None:
        b = weights[i % len(weights)]
        kernels("bench_w4a16", kernels.stream(), outputs[i % 2], x, b.data, b.scales, b.global_scale, m, n, k, space, 1, -1)

    return launch


def w4a16_work(m: int, n: int, k: int) -> dict[str, Any]:
    return {"bytes": m * k * 2 + n * k * 9 / 16 + m * n * 2, "operations": 2.0 * m * n * k, "rate": "matrix"}


# Weights [n, k] of Llama 3 70B (in eight parts), Qwen3 32B, DeepSeek-V3 and gpt-oss, and squares.
W4A16_WEIGHTS = ((8192, 3584), (25600, 5120), (1280, 8192), (8192, 1024), (2112, 7168), (576, 7168), (2880, 2880),
                 (4096, 4096), (7168, 7168), (7168, 18432), (18432, 7168))  # fmt: skip
W4A16_TOKENS = (1, 8, 16, 32, 64, 100, 128, 160, 200, 256, 300, 400, 512, 700, 1000, 1500, 3000)
HUMMING_TOKENS = (1, 16, 64, 128, 160, 256, 300, 512, 700, 1000)  # each shape compiles for some


def w4a16(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    """W4A16 beside cuBLAS in bf16 and, where it was carried and takes the weights without padding, Humming."""
    packages = kernels.folder / "humming"
    theirs = humming_gemm.Humming(packages) if packages.exists() else None
    for n, k in W4A16_WEIGHTS[:1] if quick else W4A16_WEIGHTS:
        weights = [Quantised(kernels, n, k) for _ in range(copies_for(n * k * 9 // 16))]
        taken = n % 128 == 0 and k % 128 == 0
        multiply = theirs.layers(weights, n, k, HUMMING_TOKENS) if theirs is not None and taken else None
        for m in (64, 160) if quick else W4A16_TOKENS:
            x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            outputs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
            ours = w4a16_launch(kernels, weights, x, outputs[:2])

            def cublas(i: int, x=x, weights=weights, outputs=outputs) -> None:
                torch.mm(x, weights[i % len(weights)].bf16.T, out=outputs[2 + i % 2])

            def humming(i: int, x=x, outputs=outputs, multiply=multiply) -> None:
                multiply(i, x, outputs[2 + i % 2])

            rivals = [("cuBLAS bf16", cublas, 0.2)]  # of weights that were not quantised
            if multiply is not None and m in HUMMING_TOKENS:
                # Each rounds products and sums to bf16 in its own order.
                rivals.append((f"Humming {humming_gemm.VERSION}", humming, 1e-2))
            for name, rival, most in rivals:
                ours(0)
                rival(0)
                difference = (outputs[0].double() - outputs[2].double()).norm() / outputs[0].double().norm()
                if not difference < most:
                    raise RuntimeError(f"w4a16_gemm [{m}, {n}, {k}]: differs from {name}'s by {difference:.1e}")
                yield Entry("w4a16_gemm", f"m {m}, n {n}, k {k}", ours, name, rival, **w4a16_work(m, n, k))
        del weights, multiply
        torch.cuda.empty_cache()


def gemm(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    """A linear layer with quantised weights [n, k], whose activations are quantised beforehand, are quantised with a
    dynamic scale in the measured time, or stay bf16 (W4A16); baseline: cuBLAS in bf16."""
    shapes = [(7168, 7168)] if quick else [(7168, 7168), (4096, 4096), (7168, 18432), (18432, 7168)]
    for n, k in shapes:
        weights = [Quantised(kernels, n, k) for _ in range(copies_for(n * k * 9 // 16))]
        for m in (1, 8, 16, 32, 64, 128, 256, 1024, 4096):
            tokens = Quantised(kernels, m, k)
            space = kernels.workspace("gemm", m, n, k)
            amax_space = kernels.workspace("amax")
            outputs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
            theirs = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

            def ours_with(
                constant: int, m=m, n=n, k=k, tokens=tokens, space=space, outputs=outputs, weights=weights
            ) -> Launch:
                def launch(i: int) -> None:
                    b = weights[i % len(weights)]
                    kernels("bench_gemm", kernels.stream(), outputs[i % 2], tokens.data, tokens.scales,
                            tokens.global_scale, b.data, b.scales, b.global_scale, m, n, k, space, constant,
                            -1)  # fmt: skip

                return launch

            def with_quantisation(
                i: int, m=m, k=k, tokens=tokens, amax_space=amax_space, multiply=ours_with(0)
            ) -> None:
                stream = kernels.stream()
                kernels("bench_amax", stream, tokens.global_scale, tokens.bf16, m, k, amax_space)
                kernels("bench_quantize", stream, tokens.data, tokens.scales, tokens.bf16, tokens.global_scale, m, k)
                multiply(i)

            w4a16 = w4a16_launch(kernels, weights, tokens.bf16, outputs)

            def cublas(i: int, tokens=tokens, weights=weights, theirs=theirs) -> None:
                torch.mm(tokens.bf16, weights[i % len(weights)].bf16.T, out=theirs)

            ours_with(0)(0)
            cublas(0)
            similar = torch.nn.functional.cosine_similarity(outputs[0].double(), theirs.double(), dim=1)
            if similar.min() < 0.98:
                raise RuntimeError(f"nvfp4_gemm [{m}, {n}, {k}]: cosine {similar.min():.4f} with bf16")
            work = {"bytes": (m + n) * k * 9 / 16 + m * n * 2, "operations": 2.0 * m * n * k, "rate": "matrix"}
            shape = f"m {m}, n {n}, k {k}"
            yield Entry("nvfp4_gemm", shape, ours_with(0), "cuBLAS bf16", cublas, **work)
            yield Entry("nvfp4_gemm, quantisation included", shape, with_quantisation, "cuBLAS bf16", cublas, **work)
            w4a16(0)
            cublas(0)  # again: it was timed with other weights since
            similar = torch.nn.functional.cosine_similarity(outputs[0].double(), theirs.double(), dim=1)
            if similar.min() < 0.99:
                raise RuntimeError(f"w4a16_gemm [{m}, {n}, {k}]: cosine {similar.min():.4f} with bf16")
            of_w4a16 = w4a16_work(m, n, k)
            yield Entry("w4a16_gemm", shape, w4a16, "cuBLAS bf16", cublas, **of_w4a16)
            if m >= 256:
                name = "w4a16_gemm, each alone for a second"
                yield Entry(name, shape, w4a16, "cuBLAS bf16", cublas, **of_w4a16, alone=True)
            if m <= 16:
                name = "nvfp4_gemm, constant_b"
                yield Entry(name, shape, ours_with(1), "cuBLAS bf16", cublas, **work)
        del weights
        torch.cuda.empty_cache()


def copy_of(count: float) -> Launch:
    """A copy that reads and writes that many bytes in total, as a baseline for memory-bound kernels."""
    elements = int(count) // 32 * 4  # halves of whole 16 bytes
    buffers = [torch.zeros(2, elements, device="cuda") for _ in range(min(8, copies_for(elements * 4)))]

    def launch(i: int) -> None:
        source, target = buffers[i % len(buffers)]
        torch.neg(source, out=target)

    return launch


def amax(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    for rows in (4096,) if quick else (16, 2304, 4096, 16384):
        columns = 7168
        inputs = [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
                  for _ in range(min(8, copies_for(rows * columns * 2)))]
        global_scale = torch.empty(2, device="cuda")
        state = kernels.workspace("amax")

        def ours(i: int, inputs=inputs, global_scale=global_scale, state=state, rows=rows, columns=columns) -> None:
            kernels("bench_amax", kernels.stream(), global_scale, inputs[i % len(inputs)], rows, columns, state)

        def theirs(i: int, inputs=inputs) -> None:
            torch.aminmax(inputs[i % len(inputs)])

        count = float(rows * columns)
        shape = f"[{rows}, {columns}]"
        yield Entry("amax_gsa", shape, ours, "torch.aminmax", theirs, count * 2, count)
        yield Entry("amax_gsa", shape, ours, "a copy of as many bytes", copy_of(count * 2), count * 2, count)


E2M1_BOUNDS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbours; a tie takes the even code


@torch.compile(dynamic=False)
def quantize_compiled(x: torch.Tensor, encode: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed data, and scales in rows: what Inductor makes of NVFP4's definition, but for the scales' layout."""
    blocks = x.view(-1, 16).float()
    scales = (blocks.abs().amax(1, keepdim=True) * (encode / 6)).to(torch.float8_e4m3fn)
    scaled = blocks * (encode / scales.float())
    size = scaled.abs()
    codes = torch.where(scaled < 0, 8, 0).to(torch.uint8)
    for code, bound in enumerate(E2M1_BOUNDS):
        codes += (size >= bound) if code % 2 else (size > bound)
    return codes[:, 0::2] | codes[:, 1::2] << 4, scales


def quantize(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    for rows in (4096,) if quick else (16, 2304, 4096, 16384):
        columns = 7168
        matrices = [Quantised(kernels, rows, columns) for _ in range(min(8, copies_for(rows * columns * 2)))]

        def ours(i: int, matrices=matrices, rows=rows, columns=columns) -> None:
            x = matrices[i % len(matrices)]
            kernels("bench_quantize", kernels.stream(), x.data, x.scales, x.bf16, x.global_scale, rows, columns)

        def theirs(i: int, matrices=matrices) -> None:
            x = matrices[i % len(matrices)]
            quantize_compiled(x.bf16, x.global_scale[0])

        count = float(rows * columns)
        for rival, launch in (("torch.compile", theirs), ("a copy of as many bytes", copy_of(count * 41 / 16))):
            yield Entry("quantize_nvfp4_from_buffer", f"[{rows}, {columns}]", ours, rival, launch,
                        count * (2 + 9 / 16), 2 * count)  # fmt: skip


def gate_up(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    """Gate and up matrices, deinterleaved and quantised, with and without activation; and the global scale of the result."""
    columns = 7168
    for rows in (4096,) if quick else (2304, 4096, 16384):
        copies = min(4, copies_for(rows * columns * 4))
        inputs = [torch.randn(rows, 2 * columns, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        data = torch.empty(copies, rows * columns, device="cuda", dtype=torch.uint8)
        scales = torch.empty(copies, rows * columns // 8, device="cuda", dtype=torch.uint8)
        global_scale = torch.tensor((64.0, 1 / 64.0), device="cuda")
        state = kernels.workspace("amax")
        count = float(rows * columns)
        for layout, word in enumerate(("halves", "pairs")):
            for swiglu, written in ((0, 9 / 8), (1, 9 / 16)):

                def ours(
                    i: int, inputs=inputs, data=data, scales=scales, global_scale=global_scale, rows=rows,
                    layout=layout,
                    swiglu=swiglu,
                ) -> None:  # fmt: skip
                    i %= len(inputs)
                    kernels("bench_deinterleave", kernels.stream(), data[i], scales[i], inputs[i], global_scale, rows,
                            columns, layout, swiglu)  # fmt: skip

                name = "swiglu_quantize_from_buffer" if swiglu else "deinterleave_quantize_from_buffer"
                moved = count * (4 + written)
                yield Entry(name, f"[{rows}, 2 x {columns}], {word}", ours, "a copy of as many bytes",
                            copy_of(moved), moved, 2 * count)  # fmt: skip

            def scale_of(
                i: int, inputs=inputs, global_scale=global_scale, state=state, rows=rows, layout=layout
            ) -> None:
                kernels("bench_swiglu_amax", kernels.stream(), global_scale, inputs[i % len(inputs)], rows, columns,
                        layout, state)  # fmt: skip

            yield Entry("swiglu_amax_gsa", f"[{rows}, 2 x {columns}], {word}", scale_of,
                        "a copy of as many bytes", copy_of(count * 4), count * 4, 2 * count)  # fmt: skip
        del inputs, data, scales
        torch.cuda.empty_cache()


def zipf(rows: int, vocabulary: int) -> torch.Tensor:
    """Logits of which token r in the order of likelihood has a probability of 1 / r."""
    falling = -torch.arange(1, vocabulary + 1, device="cuda").float().log()
    return torch.stack([falling[torch.randperm(vocabulary, device="cuda")] for _ in range(rows)])


def sample_by_operations(logits: torch.Tensor, what: str) -> None:
    """Sampling by PyTorch's operations: top-k 50, top-p 0.9 and min-p 0.05 where the name says so."""
    if "top-k" in what:
        values, indices = torch.topk(logits, 50)
    elif "top-p" in what:
        values, indices = torch.sort(logits, descending=True)
    else:
        values, indices = logits, None
    kept = torch.softmax(values, dim=1)
    if "top-p" in what:
        kept = kept.masked_fill(kept.cumsum(1) - kept >= 0.9, 0)
    if "min-p" in what:
        kept = kept.masked_fill(kept < 0.05 * kept.amax(1, keepdim=True), 0)
    drawn = (kept / torch.empty_like(kept).exponential_()).argmax(1, keepdim=True)
    if indices is not None:
        indices.gather(1, drawn)


def sample_by_flashinfer(flashinfer: ModuleType, what: str, top_p: torch.Tensor, min_p: torch.Tensor) -> SampleRows:
    """FlashInfer's own functions for logits, where it has some; else its softmax and that for probabilities. Its
    draws do not move on: that is its caller's part. top_k is an int, for which it has a faster way."""
    draws = {"seed": torch.zeros(1, device="cuda", dtype=torch.int64),
             "offset": torch.zeros(1, device="cuda", dtype=torch.int64)}  # fmt: skip
    from_logits = flashinfer.top_k_top_p_sampling_from_logits
    return {"top-k, top-p": lambda x: from_logits(x, 50, top_p, **draws),
            "top-k, top-p, joint": lambda x: from_logits(x, 50, top_p, filter_apply_order="joint", **draws),
            "top-p": lambda x: flashinfer.top_p_sampling_from_probs(flashinfer.softmax(x), top_p, **draws),
            "min-p": lambda x: flashinfer.min_p_sampling_from_probs(flashinfer.softmax(x), min_p, **draws),
            "no filter": lambda x: flashinfer.sampling_from_logits(x, **draws)}[what]


def top_by_operations(logits: torch.Tensor, tokens: torch.Tensor) -> None:
    log_probabilities = torch.log_softmax(logits, dim=1)
    log_probabilities.topk(20)
    log_probabilities.gather(1, tokens)


def sampler(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    """A vocabulary of 128,256. Baselines: FlashInfer, or PyTorch's operations where it was not carried;
    torch.argmax; and a copy of as many bytes as the logits have."""
    vocabulary = 128256
    flashinfer = kernels.flashinfer()
    for kind, rows in [(kind, rows) for kind in ("normal", "zipf") for rows in ((1, 64) if quick else (1, 8, 64, 256))]:
        count = max(2, -(-ROTATED_BYTES // (4 * rows * vocabulary))) * rows
        all_rows = zipf(count, vocabulary) if kind == "zipf" else torch.randn(count, vocabulary, device="cuda") * 3.75
        logits = all_rows.split(rows)  # each launch takes others
        plain, greedy = torch.ones(rows, device="cuda"), torch.zeros(rows, device="cuda")
        top_k = torch.full((rows,), 50, device="cuda", dtype=torch.int32)
        top_p = torch.full((rows,), 0.9, device="cuda")
        min_p = torch.full((rows,), 0.05, device="cuda")
        state = torch.zeros(3, device="cuda", dtype=torch.int64)
        tokens = torch.zeros(rows, device="cuda", dtype=torch.int32)
        wide_tokens = tokens.long()[:, None]
        top_tokens, top = tokens.new_empty(rows, 20), plain.new_empty(rows, 20)
        of_tokens = torch.empty_like(plain)
        read = 4.0 * rows * vocabulary

        def each(run: Callable[[torch.Tensor], object], logits=logits) -> Launch:
            return lambda i: run(logits[i % len(logits)])

        def ours(
            what: str, temperature: torch.Tensor = plain, rows=rows, state=state, tokens=tokens, top_k=top_k,
            top_p=top_p, min_p=min_p, each=each,
        ) -> Launch:  # fmt: skip
            k, p, m = (
                value if name in what else None for name, value in (("top-k", top_k), ("top-p", top_p), ("min-p", min_p))
            )
            return each(lambda x: kernels("bench_sample", kernels.stream(), tokens, x, rows, vocabulary, temperature, k,
                                          p, m, int("joint" in what), state))  # fmt: skip

        def theirs(what: str, top_p=top_p, min_p=min_p, each=each) -> Launch:
            if flashinfer is not None:
                return each(sample_by_flashinfer(flashinfer, what, top_p, min_p))
            return each(lambda x: sample_by_operations(x, what))

        shape = f"{rows} rows of {vocabulary}" + (", Zipf" if kind == "zipf" else "")
        rival = "PyTorch eager" if flashinfer is None else f"FlashInfer {flashinfer.version}"
        for what in ("top-k, top-p", "top-k, top-p, joint", "top-p", "min-p", "no filter"):
            yield Entry(f"sampler, {what}", shape, ours(what), rival, theirs(what), read, read)
        copied = "a copy of as many bytes"
        yield Entry("sampler, no filter", shape, ours(""), copied, copy_of(read), read, read)
        yield Entry("sampler, greedy", shape, ours("", greedy), "torch.argmax", each(lambda x: torch.argmax(x, 1)), read, read)
        yield Entry("sampler, greedy", shape, ours("", greedy), copied, copy_of(read), read, read)

        def top_20(
            x: torch.Tensor, rows=rows, top_tokens=top_tokens, top=top, tokens=tokens, of_tokens=of_tokens
        ) -> None:
            kernels("bench_top_log_probabilities", kernels.stream(), top_tokens, top, of_tokens, x, rows, vocabulary, 20,
                    tokens)  # fmt: skip

        yield Entry("top_log_probabilities, 20", shape, each(top_20), "PyTorch eager",
                    each(lambda x, tokens=wide_tokens: top_by_operations(x, tokens)), read, read)  # fmt: skip
        del all_rows, logits


class Experts:
    """The matrices of a layer's experts, contiguous, in bf16 and in NVFP4."""

    def __init__(self, kernels: Kernels, experts: int, rows: int, columns: int):
        self.bf16 = torch.empty(experts, rows, columns, device="cuda", dtype=torch.bfloat16)
        self.data = torch.empty(experts, rows * columns // 2, device="cuda", dtype=torch.uint8)
        atoms = -(-rows // 128) * -(-columns // 64)
        self.scales = torch.empty(experts, atoms * 512, device="cuda", dtype=torch.uint8)
        global_scale = torch.empty(experts, 2, device="cuda")
        state = kernels.workspace("amax")
        stream = kernels.stream()
        for e in range(experts):
            self.bf16[e].normal_(std=columns**-0.5)
            kernels("bench_amax", stream, global_scale[e], self.bf16[e], rows, columns, state)
            kernels("bench_quantize", stream, self.data[e], self.scales[e], self.bf16[e], global_scale[e], rows,
                    columns)  # fmt: skip
        self.decode = global_scale[:, 1].contiguous()


def grouped_moe(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """A mixture of experts in bf16 by PyTorch's grouped GEMM, to be compiled: rows in the order of their experts."""
    tokens, topk = ids.shape
    experts, width = down.shape[0], down.shape[2]
    flat = ids.view(-1)
    order = torch.argsort(flat, stable=True)
    ends = (flat[:, None] == torch.arange(experts, device=x.device)).sum(0).cumsum(0).to(torch.int32)
    both = torch._grouped_mm(x[order // topk], up.transpose(-2, -1), offs=ends)
    y = torch.nn.functional.silu(both[:, :width]) * both[:, width:]
    rows = torch._grouped_mm(y, down.transpose(-2, -1), offs=ends)
    of_slots = rows[torch.argsort(order)].view(tokens, topk, -1).float()
    return (of_slots * weights[..., None]).sum(1).bfloat16()


def largest_activation(tokens: torch.Tensor, ids: torch.Tensor, up: torch.Tensor, width: int) -> torch.Tensor:
    """The largest magnitude between the two GEMMs."""
    topk = ids.shape[1]
    largest = []
    for e in ids.unique().tolist():
        both = torch.mm(tokens[(ids.view(-1) == e).nonzero().view(-1) // topk], up[e].T)
        y = torch.nn.functional.silu(both[:, :width]) * both[:, width:]
        largest.append(y.abs().amax().float())
    return torch.stack(largest).amax()


def moe(kernels: Kernels, quick: bool) -> Iterator[Entry]:
    """A mixture of experts with random routing, W4A16 and W4A4, the latter with a given scale between its GEMMs and with a
    dynamic one; baseline: PyTorch's grouped GEMM in bf16, compiled."""
    shapes = [(8, 2, 4096, 14336)] if quick else [(8, 2, 4096, 14336), (256, 8, 7168, 2048)]
    rival = torch.compile(grouped_moe, dynamic=False)
    for experts, topk, hidden, width in shapes:
        up = Experts(kernels, experts, 2 * width, hidden)
        down = Experts(kernels, experts, hidden, width)
        for m in (1, 16, 64, 1024) if quick else (1, 4, 16, 64, 256, 1024, 4096):
            torch.compiler.reset()  # a compile for each number of tokens
            sizes = (m, topk, experts, hidden, width)
            tokens = Quantised(kernels, m, hidden)
            ids = torch.rand(m, experts, device="cuda").topk(topk).indices.int().contiguous()
            weights = torch.rand(m, topk, device="cuda")
            output = torch.empty(m, hidden, device="cuda", dtype=torch.bfloat16)
            amax = largest_activation(tokens.bf16, ids, up.bf16, width)
            global_scale = torch.stack((2688 / amax, amax / 2688))

            def theirs(i: int, tokens=tokens, ids=ids, weights=weights, up=up, down=down) -> torch.Tensor:
                return rival(tokens.bf16, ids, weights, up.bf16, down.bf16)

            expected = theirs(0)
            for name, scales in (
                    ("nvfp4_moe_w4a16", (None, None)), ("nvfp4_moe_gemm", (tokens.global_scale, global_scale)),
                    ("nvfp4_moe_gemm, dynamic scale", (tokens.global_scale, None))):  # fmt: skip
                is_w4a16 = scales[0] is None
                space = kernels.workspace("moe", *sizes, int(is_w4a16), int(not is_w4a16 and scales[1] is None))

                def ours(
                    i: int, sizes=sizes, tokens=tokens, ids=ids, weights=weights, up=up, down=down, scales=scales,
                    space=space, output=output,
                ) -> None:  # fmt: skip
                    kernels("bench_moe", kernels.stream(), output, *sizes, tokens.bf16, scales[0], ids, weights,
                            up.data, up.scales, up.decode, down.data, down.scales, down.decode, scales[1],
                            space)  # fmt: skip

                ours(0)
                similar = torch.nn.functional.cosine_similarity(output.double(), expected.double(), dim=1)
                if similar.min() < 0.95:
                    raise RuntimeError(f"{name} {sizes}: cosine {similar.min():.4f} with bf16")
                yield Entry(name, f"{m} tokens, top {topk} of {experts}, {hidden} x {width}", ours,
                            "torch._grouped_mm bf16, compiled", theirs,
                            len(ids.unique()) * 3 * hidden * width * 9 / 16 + 4.0 * m * hidden,
                            6.0 * m * topk * hidden * width, "matrix")  # fmt: skip
        del up, down
        torch.cuda.empty_cache()


PARTS = {"gemm": gemm, "w4a16": w4a16, "moe": moe, "amax": amax, "quantize": quantize, "gate_up": gate_up,
         "sampler": sampler}  # fmt: skip


def sample_alone(timer: Timer, rounds: int) -> list[float]:
    end = time.monotonic() + ALONE_S
    samples = []
    while time.monotonic() < end:
        samples.append(timer.sample())
    return samples[-rounds:]


def sample_in_turns(ours: Timer, theirs: Timer, rounds: int) -> tuple[list[float], list[float]]:
    samples = [(ours.sample(), theirs.sample()) for _ in range(rounds)]
    return [ours_us for ours_us, _ in samples], [theirs_us for _, theirs_us in samples]


def measure(entry: Entry, ceilings: dict[str, float], rounds: int) -> Measured:
    ours, theirs = Timer(entry.ours), Timer(entry.theirs)
    if entry.alone:
        samples, rival_samples = sample_alone(ours, rounds), sample_alone(theirs, rounds)
    else:
        if entry.rate == "matrix":
            time.sleep(REST_S)
        samples, rival_samples = sample_in_turns(ours, theirs, rounds)
    limit = entry.bytes / ceilings["bytes_per_s"]
    if entry.rate == "matrix":
        limit = max(limit, entry.operations / ceilings["operations_per_s"])
    return Measured(entry.kernel, entry.shape, statistics.median(samples), entry.rival,
                    statistics.median(rival_samples), limit * 1e6, entry.bytes, entry.operations,
                    samples, rival_samples)  # fmt: skip


def ceilings() -> dict[str, float]:
    """Measures the device's limits with a large element-wise kernel and a large bf16 GEMM."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copy = Timer(lambda _: torch.neg(source, out=target))  # a copy in a graph may be the copy engine's
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    product = Timer(lambda _: torch.mm(a, b, out=c))
    copy_us = statistics.median(copy.sample() for _ in range(5))
    product_us = statistics.median(product.sample() for _ in range(5))
    return {"bytes_per_s": 2 * source.nbytes / copy_us * 1e6, "operations_per_s": 2 * 8192**3 / product_us * 1e6}
