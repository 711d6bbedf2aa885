// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

#include <cukiln/tensor_box.hpp>  // first: it has names that the emulator gives away

#include "emulator/emulator.hpp"

namespace cukiln::emulator {

/// The map; what cuTensorMapEncodeTiled refuses ends the process with code 1.
inline TensorMap encode(const TensorBox& from) {
  const std::uint32_t bytes = from.element == TensorBox::Element::u8 ? 1 : 2;
  Map map{};
  map.data = static_cast<std::uint8_t*>(const_cast<void*>(from.data));
  map.rank = from.rank;
  map.element_bytes = bytes;
  map.swizzle_bytes = from.swizzled ? 128 : 0;
  bool good =
      reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0 && from.box[0] * bytes % 16 == 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    map.box[i] = i < from.rank ? from.box[i] : 1;
    map.size[i] = i < from.rank ? from.size[i] : 1;
    good = good && map.size[i] > 0 && map.box[i] > 0 && map.box[i] <= 256;
  }
  for (std::uint32_t i = 0; i + 1 < from.rank; ++i) {
    map.stride[i] = from.stride[i];
    good = good && from.stride[i] % 16 == 0;
  }
  if (!good || (from.swizzled && from.box[0] * bytes > 128)) {
    std::fprintf(stderr, "the driver would refuse a tensor map\n");
    std::exit(1);
  }
  return encode(map);
}

}  // namespace cukiln::emulator
