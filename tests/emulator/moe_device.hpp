// SPDX-License-Identifier: Apache-2.0
#pragma once

// What moe_cases.cpp takes from the library that moe_device.cpp becomes, beside the kernels
// themselves.

#include <functional>

namespace moe_device {

/// Runs `thread` in every thread of a grid.
using Launch = void(unsigned grid_x, unsigned grid_y, unsigned threads,
                    const std::function<void()>& thread);

}  // namespace moe_device
