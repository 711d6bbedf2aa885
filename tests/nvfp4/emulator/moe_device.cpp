// SPDX-License-Identifier: Apache-2.0
// The kernels of a mixture of experts without tensor cores as a host library: moe_test.py compiles
// it with the sources that device_source.py translated, and moe_cases.cpp opens it.

#include "device.hpp"  // first

#include "../emulator/moe_device.hpp"
#include "nvfp4_moe_combine.cu"
#include "nvfp4_moe_grouped.cu"
#include "swiglu_quantize.cu"

extern "C" moe_device::Launch launch_grid;

void launch_grid(unsigned grid_x, unsigned grid_y, unsigned threads,
                 const std::function<void()>& thread) {
  device::launch({grid_x, grid_y}, threads, thread);
}
