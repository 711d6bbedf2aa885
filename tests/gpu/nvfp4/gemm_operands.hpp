// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operands of GEMMs on both sides.

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"

namespace cukiln::testing {

inline constexpr std::array<float, 16> kE2m1Floats = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                      -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// A quantised matrix on both sides. Padding rows' scales are NaN: no result may depend on them.
/// Those beyond the columns are 0, as the quantisers write them.
struct HostOperand {
  std::size_t rows;
  std::size_t columns;
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  nvfp4::GlobalScale global_scale;

  float at(std::size_t row, std::size_t column) const {
    const std::uint8_t pair = data[(row * columns + column) / 2];
    return kE2m1Floats[column % 2 != 0 ? pair >> 4 : pair & 15] *
           float_of_ue4m3(scales[nvfp4::scale_offset(row, column / 16, columns)]);
  }
  std::uint8_t& scale(std::size_t row, std::size_t block) {
    return scales[nvfp4::scale_offset(row, block, columns)];
  }
};

/// Every E2M1 value and every finite scale byte, so that the GEMM meets fp16's and float's whole
/// range.
inline HostOperand random_operand(std::size_t rows, std::size_t columns, float decode,
                                  std::mt19937_64& random) {
  HostOperand made{
      rows, columns, std::vector<std::uint8_t>(rows * columns / 2), {}, {1 / decode, decode}};
  made.scales.assign(
      nvfp4::scales_bytes(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)),
      0x7F);
  for (std::uint8_t& pair : made.data) pair = static_cast<std::uint8_t>(random());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t block = 0; block < (columns + 63) / 64 * 4; ++block) {
      made.scale(row, block) =
          static_cast<std::uint8_t>(block < columns / 16 ? random() % 0x7F : 0);
    }
  }
  return made;
}

struct DeviceOperand {
  explicit DeviceOperand(const HostOperand& host)
      : rows(static_cast<std::int64_t>(host.rows)),
        columns(static_cast<std::int64_t>(host.columns)),
        data(host.data),
        scales(host.scales),
        global_scale(on_device(host.global_scale)) {}
  nvfp4::MutableQuantizedMatrix view() const {
    return {data.data(), scales.data(), global_scale.data(), rows, columns};
  }

  std::int64_t rows;
  std::int64_t columns;
  DeviceBuffer<std::uint8_t> data;
  DeviceBuffer<std::uint8_t> scales;
  DeviceBuffer<nvfp4::GlobalScale> global_scale;
};

}  // namespace cukiln::testing
