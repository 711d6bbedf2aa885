// SPDX-License-Identifier: Apache-2.0
#pragma once

// Views of device memory from sizes of any integer type, and quantised matrices on the device.

#include <cstdint>
#include <vector>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/support/device.hpp"

namespace cukiln::testing {

/// bf16, dense.
template <class Rows, class Columns>
MatrixView bf16(const std::uint16_t* data, Rows rows, Columns columns) {
  return {DataType::bf16, data, static_cast<std::int64_t>(rows),
          static_cast<std::int64_t>(columns)};
}
template <class Rows, class Columns>
MutableMatrixView bf16(std::uint16_t* data, Rows rows, Columns columns) {
  return {DataType::bf16, data, static_cast<std::int64_t>(rows),
          static_cast<std::int64_t>(columns)};
}
template <class Rows, class Columns, class Stride>
MatrixView bf16(const std::uint16_t* data, Rows rows, Columns columns, Stride row_stride) {
  return {DataType::bf16, data, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
          static_cast<std::int64_t>(row_stride)};
}

/// A global scale in device memory.
inline DeviceBuffer<nvfp4::GlobalScale> on_device(nvfp4::GlobalScale scale) {
  return DeviceBuffer<nvfp4::GlobalScale>(std::vector<nvfp4::GlobalScale>{scale});
}

/// Memory for a quantised matrix, full of a pattern until something is written.
struct QuantizedBuffers {
  QuantizedBuffers(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count),
        columns(column_count),
        data(nvfp4::data_bytes(rows, columns)),
        scales(nvfp4::scales_bytes(rows, columns)) {
    data.fill_bytes(0xA5);
    scales.fill_bytes(0xA5);
    Device::first().synchronize();
  }

  nvfp4::MutableQuantizedMatrix view(const DeviceBuffer<nvfp4::GlobalScale>& global_scale) const {
    return {data.data(), scales.data(), global_scale.data(), rows, columns};
  }

  std::int64_t rows;
  std::int64_t columns;
  DeviceBuffer<std::uint8_t> data;
  DeviceBuffer<std::uint8_t> scales;
};

}  // namespace cukiln::testing
