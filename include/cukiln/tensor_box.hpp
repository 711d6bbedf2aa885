// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {
inline namespace v0 {

/// A tensor in device memory, and the box of it that one TMA copy transfers. Out-of-bounds elements
/// are zero. Dimensions are innermost first.
struct TensorBox {
  enum class Element : std::uint8_t { u8, u16, f16, bf16 };
  Element element = Element::u8;
  /// 64-byte swizzle for a box 64 bytes wide, else 128-byte swizzle: at most 128 bytes wide.
  bool swizzled = false;
  std::uint32_t rank = 2;          ///< 2 or 3
  const void* data = nullptr;      ///< 16-byte aligned
  std::uint64_t size[3] = {};      ///< in elements
  std::uint64_t stride[2] = {};    ///< of the outer dimensions, in bytes, multiples of 16
  std::uint32_t box[3] = {};       ///< in elements, at most 256 each
  bool fetches_256_bytes = false;  ///< into L2 at a time, or 128
};

}  // namespace v0
}  // namespace cukiln
