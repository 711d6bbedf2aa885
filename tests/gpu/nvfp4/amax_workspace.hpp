// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <cukiln/nvfp4.hpp>

namespace cukiln::testing {

/// What a launch of `AmaxGsa` takes, and leaves.
inline const std::vector<std::uint32_t> kAmaxWorkspace(nvfp4::AmaxGsa::kWorkspaceBytes / 4, 0);

}  // namespace cukiln::testing
