// SPDX-License-Identifier: Apache-2.0
#pragma once

// scripts/tune writes this file on a card of sm_100. None was measured so far.

#include <array>
#include <cstdint>

#include "nvfp4/host/gemm_table.hpp"

namespace cukiln::nvfp4::sm100 {

inline constexpr std::array<MeasuredRow, 0> kMeasuredRows{};
inline constexpr std::uint32_t kMeasuredSms = 0;

}  // namespace cukiln::nvfp4::sm100
