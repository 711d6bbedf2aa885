// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// A tensor in device memory as a kernel's bulk copies (TMA) see it: boxes of it, zero where it
/// ends. Innermost dimension first.
struct TensorBox {
  enum class Element : std::uint8_t { u8, u16, f16, bf16 };
  Element element = Element::u8;
  bool swizzled = false;       ///< by 128 bytes: then a box is at most 128 bytes wide
  std::uint32_t rank = 2;      ///< 2 or 3
  const void* data = nullptr;  ///< 16-byte aligned
  std::uint64_t size[3] = {};  ///< in elements
  std::uint64_t stride[2] =
      {};                     ///< in bytes, multiples of 16, of the dimensions above the innermost
  std::uint32_t box[3] = {};  ///< in elements, at most 256 each
};

}  // namespace cukiln
