// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of nvfp4_gemm.cu as g++ compiles them.

#include "emulator/cuda.hpp"                      // first
#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after machine.cuh
#include "kernels_src/nvfp4/machine.cuh"

using GemmKernel = cukiln::signatures::Nvfp4Gemm;
using SwappedGemmKernel = cukiln::signatures::Nvfp4GemmSwapped;
using GroupedGemmKernel = cukiln::signatures::Nvfp4GemmGrouped;

extern "C" {
GemmKernel nvfp4_gemm_128x128, nvfp4_gemm_128x256, nvfp4_gemm_256x256, nvfp4_gemm_256x128,
    nvfp4_gemm_256x256_x2, nvfp4_gemm_256x192_x2, nvfp4_gemm_256x128_x2, nvfp4_gemm_256x256_x4,
    nvfp4_gemm_256x192_x4;
SwappedGemmKernel nvfp4_gemm_swapped_16, nvfp4_gemm_swapped_32, nvfp4_gemm_swapped_64,
    nvfp4_gemm_swapped_128, nvfp4_gemm_swapped_256, nvfp4_gemm_swapped_64_half;
GroupedGemmKernel nvfp4_gemm_grouped_128x128, nvfp4_gemm_grouped_128x256;
}
