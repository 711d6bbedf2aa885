# SPDX-License-Identifier: Apache-2.0
"""Kernels launched from Python on a GPU's own tensors.

usage: modules_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import torch
from rows import run

import cukiln

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void spin(long long cycles) {
  for (const long long end = clock64() + cycles; clock64() < end;) {
  }
}
struct Pair { double first; int second; };
extern "C" __global__ void types(double* out, Pair pair, signed char c, unsigned short s,
                                 unsigned long long l, float f, double d, bool b) {
  const double all[] = {pair.first, double(pair.second), double(c), double(s), double(l), f, d,
                        double(b)};
  for (int i = 0; i < 8; ++i) out[i] = all[i];
}
extern "C" __global__ void shared(int* out, int n) {
  extern __shared__ int memory[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) memory[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) *out = memory[n - 1];
}
"""
# Of two thread blocks only the last writes its amax.
LOST = """
#include "amax.cuh"
extern "C" __global__ void lost(float* scale, unsigned* workspace) {
  if (blockIdx.x + 1 == gridDim.x) cukiln::nvfp4::write_global_scale(scale, workspace, 0, 2688);
}
"""
NVFP4 = REPOSITORY / "kernels_src" / "nvfp4"
N = 1000


class OnlyDlpack:
    """A tensor of a framework that knows DLPack and nothing else."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.__dlpack_device__ = tensor.__dlpack_device__

    def __dlpack__(self, **options: object) -> object:
        return self._tensor.__dlpack__(**options)


class OnlyCudaArray:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class Modules(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="cukiln-modules-")
        cls.source = Path(cls.folder.name, "own.cu")
        cls.source.write_text(SOURCE)
        cls.module = cukiln.get_cuda_module("own", [cls.source], ["-O3"])
        cls.addClassCleanup(cls.folder.cleanup)

    def ones_and_twos(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((N,), 2.0, device="cuda"), torch.ones(N, device="cuda")

    def test_a_kernel_computes_on_tensors(self):
        x, y = self.ones_and_twos()
        self.module.axpy[4, 256](3.0, x, y, N)
        self.assertTrue((y == 7).all())
        self.assertEqual(self.module.axpy.parameter_bytes, (4, 8, 8, 4))

    def test_dlpack_and_cuda_array_objects_are_pointers(self):
        for kind in (OnlyDlpack, OnlyCudaArray):
            x, y = self.ones_and_twos()
            self.module.axpy[4, 256](3.0, kind(x), kind(y), N)
            self.assertTrue((y == 7).all(), kind)
        x, y = self.ones_and_twos()
        self.module.axpy[4, 256](3.0, OnlyDlpack(x[10:]), y, N - 10)  # with an offset
        self.assertEqual(int((y == 7).sum()), N - 10)

    def test_pinned_memory_is_read_where_it_is(self):
        y = torch.ones(N, device="cuda")
        self.module.axpy[4, 256](3.0, torch.full((N,), 2.0).pin_memory(), y, N)
        self.assertTrue((y == 7).all())

    def test_values_arrive_in_the_types_of_the_parameters(self):
        out = torch.zeros(8, dtype=torch.float64, device="cuda")
        pair = struct.pack("<dixxxx", 2.5, -7)
        self.module.types[1, 1](out, pair, -3, 60000, 2**63, 0.1, 0.1, True)
        single = torch.tensor(0.1, dtype=torch.float32).double().item()
        self.assertEqual(out.tolist(), [2.5, -7, -3, 60000, 2.0**63, single, 0.1, 1])

    def test_much_shared_memory_is_reserved(self):
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        n = 200 << 8
        self.module.shared[1, 256, None, 4 * n](out, n)
        self.assertEqual(out.item(), n - 1)

    def test_pytorchs_current_stream_is_used(self):
        x, y = self.ones_and_twos()
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            self.module.spin[1, 1](1_000_000_000)
            self.module.axpy[4, 256](3.0, x, y, N)
        self.assertFalse(side.query())  # it is in this stream,
        self.assertTrue(torch.cuda.default_stream().query())  # and in no other
        side.synchronize()
        self.assertTrue((y == 7).all())

    def test_a_launch_is_captured_and_replayed(self):
        x, y = self.ones_and_twos()
        launch = self.module.axpy.configure(4, 256)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(3.0, x, y, N)
        self.assertTrue((y == 1).all())
        graph.replay()
        graph.replay()
        self.assertTrue((y == 13).all())

    def test_a_new_thread_has_the_context_that_it_needs(self):
        x, y = self.ones_and_twos()
        torch.cuda.synchronize()
        failed = []

        def work() -> None:
            try:
                self.module.axpy[4, 256](3.0, x, y, N)
            except cukiln.Error as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.cuda.synchronize()
        self.assertEqual(failed, [])
        self.assertTrue((y == 7).all())

    def test_a_second_call_is_a_hit_and_an_edit_is_not(self):
        self.assertIs(cukiln.get_cuda_module("own", [self.source], ["-O3"]), self.module)
        path = Path(self.folder.name, "edited.cu")
        path.write_text(SOURCE)
        first = cukiln.get_cuda_module("edited", [path])
        path.write_text(SOURCE.replace("+= a", "-= a"))
        second = cukiln.get_cuda_module("edited", [path])
        x, y = self.ones_and_twos()
        first.axpy[4, 256](3.0, x, y, N)  # what was loaded stays what it was
        second.axpy[4, 256](1.5, x, y, N)
        self.assertTrue((y == 4).all())

    def test_functions_of_shipped_modules_take_and_return_tensors(self):
        x = torch.randn(256, 512, generator=torch.Generator().manual_seed(1)).bfloat16()
        global_scale = cukiln.get_cuda_module("amax_gsa").amax_gsa(x.cuda())
        module = cukiln.get_cuda_module("fused_amax_quantize")
        given = module.quantize_nvfp4_from_buffer(x.cuda(), global_scale)
        expected = module.quantize_nvfp4_from_buffer(x, global_scale.cpu())
        for one, other in zip(given, expected, strict=True):
            self.assertTrue(one.is_cuda)
            self.assertTrue(one.cpu().equal(other))
        for divisor in (2688.0, 1536.0):
            given = module.fused_amax_quantize_nvfp4(x.cuda(), divisor)
            expected = module.fused_amax_quantize_nvfp4(x, divisor)
            for one, other in zip(given, expected, strict=True):
                self.assertTrue(one.is_cuda)
                self.assertTrue(one.cpu().equal(other))

    def test_an_amax_that_never_comes_is_a_trap_and_no_hang(self):
        path = Path(self.folder.name, "lost.cu")
        path.write_text(LOST)
        script = (
            "import torch, cukiln\n"
            f"lost = cukiln.get_cuda_module('lost', [{str(path)!r}], extra_include_paths=[{str(NVFP4)!r}]).lost\n"
            "lost[2, 512](torch.ones(2, device='cuda'), torch.zeros(2, dtype=torch.int32, device='cuda'))\n"
            "torch.cuda.synchronize()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("unspecified launch failure", done.stderr)

    def test_the_example_runs(self):
        command = [sys.executable, REPOSITORY / "examples" / "own_kernel.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("= 7, 7 (7 expected)", done.stdout)


if __name__ == "__main__":
    sys.exit(run(Modules))
