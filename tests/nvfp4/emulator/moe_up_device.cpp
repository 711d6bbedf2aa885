// SPDX-License-Identifier: Apache-2.0
// moe_grouped_up in an emulator of its own, as a host library: moe_test.py compiles it with the
// sources that device_source.py translated, and moe_cases.cpp opens it.

#include "emulator/cuda.hpp"  // first

#include "../kernels/ptx.hpp"

#define __shared__ static  // of functions that this kernel does not call
#define __CUDA_ARCH__ 1000

using std::max;

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

#include "nvfp4_moe_grouped_up.cu"
