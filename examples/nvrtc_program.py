# SPDX-License-Identifier: Apache-2.0
"""A program that was not written for cukiln: cuda.core compiles a template, as in NVIDIA's own examples. Unchanged it uses
the store, and needs no GPU, but `pip install 'cuda-core[cu13]'`:

  cukiln run -- python3 examples/nvrtc_program.py
"""

from cuda.core import Program, ProgramOptions

SOURCE = """
template <class T>
__global__ void axpy(T a, const T* x, T* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""

program = Program(SOURCE, "c++", ProgramOptions(arch="sm_90"))
module = program.compile("cubin", name_expressions=("axpy<float>", "axpy<double>"))
print(f"{len(module.code)} bytes: {', '.join(module.symbol_mapping)}")
