// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln::emulator {

/// Where TMA and the tensor core put a byte of shared memory under the 128-byte swizzle: pieces of
/// 16 bytes trade places within rows of 128, another order in each of eight rows.
constexpr std::uint32_t swizzled(std::uint32_t offset) { return offset ^ (offset >> 7 & 7) << 4; }

}  // namespace cukiln::emulator
