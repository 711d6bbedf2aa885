// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of nvfp4_gemm.cu as g++ compiles them.

#include "emulator/cuda.hpp"  // first
#include "kernels_src/nvfp4/machine.cuh"

using GemmKernel = void(cukiln::TensorMap rows, cukiln::TensorMap columns,
                        cukiln::TensorMap row_scales, cukiln::TensorMap column_scales,
                        cukiln::TensorMap output, const float* gsa_a, const float* gsa_b,
                        const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n, cukiln::u32 k);

using GroupedGemmKernel = void(cukiln::TensorMap rows, cukiln::TensorMap columns,
                               cukiln::TensorMap row_scales, cukiln::TensorMap column_scales,
                               cukiln::TensorMap output, const float* gsa_a, const float* gsa_b,
                               const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n, cukiln::u32 k,
                               const int* experts, cukiln::u32 gsa_a_stride);

extern "C" {
GemmKernel nvfp4_gemm_128x128, nvfp4_gemm_128x256, nvfp4_gemm_256x256, nvfp4_gemm_swapped;
GroupedGemmKernel nvfp4_gemm_grouped_128x128, nvfp4_gemm_grouped_128x256;
}
