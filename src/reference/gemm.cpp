// SPDX-License-Identifier: Apache-2.0
#include "reference/gemm.hpp"

#include <vector>

#include "reference/formats.hpp"
#include "reference/quantize.hpp"

namespace cukiln::reference {

namespace {

/// Rows of a quantised matrix, decoded: twice the elements (which are integers) and the block
/// scales.
struct Rows {
  std::int64_t columns;
  std::vector<std::int16_t> twice;
  std::vector<float> scales;

  Rows(std::int64_t rows, std::int64_t width)
      : columns(width),
        twice(static_cast<std::size_t>(rows * width)),
        scales(static_cast<std::size_t>(rows * (width / kBlock))) {}

  /// Decodes row `from` of a matrix into row `to`.
  void read(std::int64_t to, const std::uint8_t* codes, const std::uint8_t* scale_bytes,
            std::int64_t from) noexcept {
    std::int16_t* const elements = twice.data() + to * columns;
    const std::uint8_t* const row = codes + from * (columns / 2);
    for (std::int64_t i = 0; i < columns / 2; ++i) {
      elements[2 * i] = kTwiceE2m1[row[i] & 15];
      elements[2 * i + 1] = kTwiceE2m1[row[i] >> 4];
    }
    for (std::int64_t block = 0; block < columns / kBlock; ++block) {
      scales[static_cast<std::size_t>(to * (columns / kBlock) + block)] =
          decode_ue4m3(scale_bytes[nvfp4::scale_offset(static_cast<std::size_t>(from),
                                                       static_cast<std::size_t>(block),
                                                       static_cast<std::size_t>(columns))]);
    }
  }
};

/// Four times the dot product of two rows, because both have twice the elements; without the global
/// scales.
double four_times_dot(const Rows& a, std::int64_t i, const Rows& b, std::int64_t j) noexcept {
  const std::int16_t* const left = a.twice.data() + i * a.columns;
  const std::int16_t* const right = b.twice.data() + j * b.columns;
  const std::int64_t blocks = a.columns / kBlock;
  const float* const left_scales = a.scales.data() + i * blocks;
  const float* const right_scales = b.scales.data() + j * blocks;
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int32_t dot = 0;
    for (std::int64_t c = 0; c < kBlock; ++c) {
      dot += std::int32_t{left[block * kBlock + c]} * right[block * kBlock + c];
    }
    // Exact in float: the block's dot product has 12 bits and the scales' product 8.
    sum += static_cast<float>(dot) * (left_scales[block] * right_scales[block]);
  }
  return sum;
}

std::uint16_t rounded(double value) noexcept { return bf16_of_float(static_cast<float>(value)); }

}  // namespace

void gemm(std::uint16_t* output, const nvfp4::Matrix& a, const nvfp4::Matrix& b,
          const std::uint16_t* bias, std::int64_t m, std::int64_t n, std::int64_t k) {
  Rows left(m, k);
  for (std::int64_t i = 0; i < m; ++i) {
    left.read(i, a.codes, a.scales, i);
  }
  const double alpha = 0.25 * double{a.gsa[1]} * double{b.gsa[1]};
  Rows right(1, k);
  for (std::int64_t j = 0; j < n; ++j) {
    right.read(0, b.codes, b.scales, j);
    const double offset = bias != nullptr ? float_of_bf16(bias[j]) : 0.0;
    for (std::int64_t i = 0; i < m; ++i) {
      output[i * n + j] = rounded(alpha * four_times_dot(left, i, right, 0) + offset);
    }
  }
}

void moe_gemm(std::uint16_t* output, const nvfp4::MoeShape& shape, const nvfp4::MoeInput& input,
              const nvfp4::MoeWeights& up, const nvfp4::MoeWeights& down,
              const float* activation_gsa, nvfp4::GateUpLayout layout,
              const nvfp4::SwiGlu& activation, bool rounds_products) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t width = shape.width;
  const std::int64_t slots = shape.tokens * shape.topk;
  const std::int64_t ids = shape.global_experts != 0 ? shape.global_experts : shape.experts;
  const auto intermediate = [&](double value) {
    return rounds_products ? double{float_of_bf16(rounded(value))} : value;
  };

  const auto bytes = [](std::size_t count) { return std::vector<std::uint8_t>(count); };
  auto codes = bytes(nvfp4::codes_bytes(shape.tokens, hidden));
  auto scales = bytes(nvfp4::scales_bytes(shape.tokens, hidden));
  quantize(codes.data(), scales.data(), {input.hidden, shape.tokens, hidden, hidden},
           {input.hidden_gsa[0], input.hidden_gsa[1]});
  Rows tokens(shape.tokens, hidden);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    tokens.read(token, codes.data(), scales.data(), token);
  }

  std::vector<std::vector<std::int64_t>> slots_of(static_cast<std::size_t>(shape.experts));
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int32_t id = input.topk_ids[slot];
    if (id < 0 || id >= ids) {
      continue;
    }
    const std::int32_t expert = input.expert_map != nullptr ? input.expert_map[id] : id;
    if (expert >= 0 && expert < shape.experts) {
      slots_of[static_cast<std::size_t>(expert)].push_back(slot);
    }
  }

  std::vector<float> partial(static_cast<std::size_t>(slots * hidden));
  std::vector<bool> valid(static_cast<std::size_t>(slots));
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    const std::vector<std::int64_t>& mine = slots_of[static_cast<std::size_t>(expert)];
    const auto rows = static_cast<std::int64_t>(mine.size());
    if (rows == 0) {
      continue;
    }
    const auto matrix = [expert](const nvfp4::MoeWeights& weights, std::int64_t n, std::int64_t k) {
      return nvfp4::Matrix{
          weights.codes + static_cast<std::size_t>(expert) * nvfp4::codes_bytes(n, k),
          weights.scales + static_cast<std::size_t>(expert) * nvfp4::scales_bytes(n, k),
          weights.decode + expert};
    };
    const nvfp4::Matrix first = matrix(up, 2 * width, hidden);
    const double alpha = 0.25 * double{input.hidden_gsa[1]} * double{*first.gsa};
    std::vector<std::uint16_t> y(static_cast<std::size_t>(rows * width));
    Rows pair(2, hidden);
    for (std::int64_t column = 0; column < width; ++column) {
      const bool halves = layout == nvfp4::GateUpLayout::halves;
      pair.read(0, first.codes, first.scales, halves ? column : 2 * column);
      pair.read(1, first.codes, first.scales, halves ? width + column : 2 * column + 1);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t token = mine[static_cast<std::size_t>(row)] / shape.topk;
        const double gate = intermediate(alpha * four_times_dot(tokens, token, pair, 0));
        const double linear = intermediate(alpha * four_times_dot(tokens, token, pair, 1));
        y[static_cast<std::size_t>(row * width + column)] = swiglu(gate, linear, activation);
      }
    }

    auto y_codes = bytes(nvfp4::codes_bytes(rows, width));
    auto y_scales = bytes(nvfp4::scales_bytes(rows, width));
    quantize(y_codes.data(), y_scales.data(), {y.data(), rows, width, width},
             {activation_gsa[0], activation_gsa[1]});
    Rows activations(rows, width);
    for (std::int64_t row = 0; row < rows; ++row) {
      activations.read(row, y_codes.data(), y_scales.data(), row);
    }
    const nvfp4::Matrix second = matrix(down, hidden, width);
    const double beta = 0.25 * double{activation_gsa[1]} * double{*second.gsa};
    Rows right(1, width);
    for (std::int64_t column = 0; column < hidden; ++column) {
      right.read(0, second.codes, second.scales, column);
      for (std::int64_t row = 0; row < rows; ++row) {
        partial[static_cast<std::size_t>(mine[static_cast<std::size_t>(row)] * hidden + column)] =
            static_cast<float>(intermediate(beta * four_times_dot(activations, row, right, 0)));
      }
    }
    for (const std::int64_t slot : mine) {
      valid[static_cast<std::size_t>(slot)] = true;
    }
  }

  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (std::int64_t column = 0; column < hidden; ++column) {
      double sum = 0;
      for (std::int64_t slot = token * shape.topk; slot < (token + 1) * shape.topk; ++slot) {
        if (valid[static_cast<std::size_t>(slot)]) {
          sum += double{input.topk_weights[slot]} *
                 double{partial[static_cast<std::size_t>(slot * hidden + column)]};
        }
      }
      output[token * hidden + column] = rounded(sum);
    }
  }
}

}  // namespace cukiln::reference
