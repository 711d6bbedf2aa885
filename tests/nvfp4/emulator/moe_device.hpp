// SPDX-License-Identifier: Apache-2.0
#pragma once

// What moe_cases.cpp takes from the libraries that moe_device.cpp and moe_up_device.cpp become,
// beside the kernels themselves.

#include <functional>

namespace cukiln::emulator {
struct Grid;
}

namespace moe_device {

/// Runs `thread` in every thread of a grid.
using Launch = void(unsigned grid_x, unsigned grid_y, unsigned threads,
                    const std::function<void()>& thread);

/// In the library that moe_up_device.cpp becomes: cukiln::emulator::launch of its emulator.
using LaunchEmulated = void(const cukiln::emulator::Grid& grid,
                            const std::function<void()>& thread);

}  // namespace moe_device
