// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/reference/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nvfp4/reference/formats.hpp"

namespace cukiln::reference {

namespace {

/// The largest magnitude, as bf16: as integers NaN is above infinity, and that above all numbers.
std::uint16_t largest_magnitude(const std::uint16_t* values, std::int64_t count) noexcept {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<std::uint16_t>(values[i] & 0x7FFF));
  }
  return largest;
}

void encode_block(std::uint8_t* data, const std::uint16_t* values, float multiplier) noexcept {
  std::uint32_t code[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const float magnitude = float_of_bf16(values[i] & 0x7FFF);
    code[i] = encode_e2m1(magnitude * multiplier) | (values[i] >> 12 & 8);
  }
  for (std::int64_t i = 0; i < kBlock / 2; ++i) {
    data[i] = static_cast<std::uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
  }
}

const std::uint16_t* row_of(const MatrixView& matrix, std::int64_t row) noexcept {
  return matrix.data_as<const std::uint16_t>() + row * matrix.row_stride;
}

const std::uint16_t* gate_of(const std::uint16_t* row, std::int64_t column, std::int64_t /*width*/,
                             nvfp4::GateUpLayout layout) noexcept {
  return row + (layout == nvfp4::GateUpLayout::halves ? column : 2 * column);
}

const std::uint16_t* up_of(const std::uint16_t* row, std::int64_t column, std::int64_t width,
                           nvfp4::GateUpLayout layout) noexcept {
  return row + (layout == nvfp4::GateUpLayout::halves ? width + column : 2 * column + 1);
}

}  // namespace

nvfp4::GlobalScale compute_global_scale(const MatrixView& input, float divisor) {
  std::uint16_t largest = 0;
  for (std::int64_t row = 0; row < input.rows; ++row) {
    largest = std::max(largest, largest_magnitude(row_of(input, row), input.columns));
  }
  const float amax = float_of_bf16(largest);
  const float encode = min_nan(divisor / amax, kFloatMax);
  if (amax == 0.0f || encode == 0.0f) {
    return {1.0f, 1.0f};
  }
  return {encode, 1.0f / encode};
}

void quantize(const nvfp4::MutableQuantizedMatrix& output, const MatrixView& input) {
  std::fill_n(output.scales, nvfp4::scales_bytes(input.rows, input.columns), std::uint8_t{0});
  const float scale_factor = output.global_scale->encode * (1.0f / 6.0f);
  float multipliers[128];
  for (int byte = 0; byte < 128; ++byte) {
    multipliers[byte] = min_nan(
        1.0f / (decode_ue4m3(static_cast<std::uint8_t>(byte)) * output.global_scale->decode),
        kFloatMax);
  }
  std::uint8_t* data = output.data;
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const std::uint16_t* const values = row_of(input, row);
    for (std::int64_t column = 0; column < input.columns; column += kBlock, data += kBlock / 2) {
      const float amax = float_of_bf16(largest_magnitude(values + column, kBlock));
      const std::uint8_t scale = encode_ue4m3(amax * scale_factor);
      output.scales[nvfp4::scale_offset(static_cast<std::size_t>(row),
                                        static_cast<std::size_t>(column / kBlock),
                                        static_cast<std::size_t>(input.columns))] = scale;
      if (scale == 0 || scale == kNanScaleByte) {
        std::memset(data, 0, kBlock / 2);
      } else {
        encode_block(data, values + column, multipliers[scale]);
      }
    }
  }
}

std::uint16_t swiglu(double gate, double up, const nvfp4::SwiGlu& activation) noexcept {
  const double limit = activation.limit;
  const double g = min_nan(gate, limit);
  const double u = min_nan(max_nan(up, -limit), limit);
  const double y =
      g * (1.0 / (1.0 + std::exp(-double{activation.alpha} * g))) * (u + double{activation.beta});
  return bf16_of_float(static_cast<float>(y));
}

void swiglu(const MutableMatrixView& output, const MatrixView& gate_up, nvfp4::GateUpLayout layout,
            const nvfp4::SwiGlu& activation) {
  const std::int64_t width = gate_up.columns / 2;
  auto* to = output.data_as<std::uint16_t>();
  for (std::int64_t row = 0; row < gate_up.rows; ++row) {
    const std::uint16_t* const values = row_of(gate_up, row);
    for (std::int64_t column = 0; column < width; ++column) {
      *to++ = swiglu(float_of_bf16(*gate_of(values, column, width, layout)),
                     float_of_bf16(*up_of(values, column, width, layout)), activation);
    }
  }
}

void deinterleave(const MutableMatrixView& output, const MatrixView& gate_up,
                  nvfp4::GateUpLayout layout) {
  const std::int64_t width = gate_up.columns / 2;
  auto* to = output.data_as<std::uint16_t>();
  for (std::int64_t row = 0; row < gate_up.rows; ++row, to += 2 * width) {
    const std::uint16_t* const values = row_of(gate_up, row);
    for (std::int64_t column = 0; column < width; ++column) {
      to[column] = *gate_of(values, column, width, layout);
      to[width + column] = *up_of(values, column, width, layout);
    }
  }
}

}  // namespace cukiln::reference
