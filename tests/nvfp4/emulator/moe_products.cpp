// SPDX-License-Identifier: Apache-2.0
// The grouped GEMMs, for moe_cases.cpp.
#include "emulator/cuda.hpp"  // first
#include "kernels_src/nvfp4/nvfp4_gemm.cu"
