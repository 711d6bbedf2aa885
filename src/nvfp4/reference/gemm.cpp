// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/reference/gemm.hpp"

#include <vector>

#include "nvfp4/reference/formats.hpp"
#include "nvfp4/reference/quantize.hpp"

namespace cukiln::reference {

namespace {

std::size_t size_of(std::int64_t value) noexcept { return static_cast<std::size_t>(value); }

/// Rows of a quantised matrix, decoded: twice the elements (which are integers) and the block
/// scales.
struct Rows {
  std::int64_t columns;
  std::vector<std::int16_t> twice;
  std::vector<float> scales;

  Rows(std::int64_t rows, std::int64_t width)
      : columns(width), twice(size_of(rows * width)), scales(size_of(rows * (width / kBlock))) {}

  /// Decodes row `from` of a matrix into row `to`.
  void read(std::int64_t to, const nvfp4::QuantizedMatrix& matrix, std::int64_t from) noexcept {
    std::int16_t* const elements = twice.data() + to * columns;
    const std::uint8_t* const row = matrix.data + from * (columns / 2);
    for (std::int64_t i = 0; i < columns / 2; ++i) {
      elements[2 * i] = kTwiceE2m1[row[i] & 15];
      elements[2 * i + 1] = kTwiceE2m1[row[i] >> 4];
    }
    for (std::int64_t block = 0; block < columns / kBlock; ++block) {
      scales[size_of(to * (columns / kBlock) + block)] = decode_ue4m3(
          matrix.scales[nvfp4::scale_offset(size_of(from), size_of(block), size_of(columns))]);
    }
  }
};

Rows all_rows(const nvfp4::QuantizedMatrix& matrix) {
  Rows rows(matrix.rows, matrix.columns);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    rows.read(row, matrix, row);
  }
  return rows;
}

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

/// Twice the dot product of bf16 tokens and a row, which has twice the elements; without the global
/// scale.
double twice_dot(const std::uint16_t* tokens, const Rows& b, std::int64_t j) noexcept {
  const std::int16_t* const right = b.twice.data() + j * b.columns;
  const std::int64_t blocks = b.columns / kBlock;
  const float* const scales = b.scales.data() + j * blocks;
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    double dot = 0;
    for (std::int64_t c = 0; c < kBlock; ++c) {
      dot += double{float_of_bf16(tokens[block * kBlock + c])} * right[block * kBlock + c];
    }
    sum += dot * double{scales[block]};
  }
  return sum;
}

/// The largest power of two, up to 2^120, with which no block's scale rounds above 448, as
/// kernels_src/nvfp4/row_scales.cuh has it.
nvfp4::GlobalScale power_of_two_scale(const MatrixView& row) noexcept {
  float encode = 0x1p120f;
  for (std::int64_t c = 0; c < row.columns; ++c) {
    const float value = float_of_bf16(row.data_as<const std::uint16_t>()[c]);
    while (std::fabs(value) * (1.0f / 6) * encode > 464) {  // halfway to the next scale
      encode /= 2;
    }
  }
  return {encode, 1 / encode};
}

std::uint16_t rounded(double value) noexcept { return bf16_of_float(static_cast<float>(value)); }

/// A matrix that is quantised here.
struct OwnedMatrix {
  OwnedMatrix(const MatrixView& input, const nvfp4::GlobalScale& scale)
      : data(nvfp4::data_bytes(input.rows, input.columns)),
        scales(nvfp4::scales_bytes(input.rows, input.columns)) {
    view = {data.data(), scales.data(), &scale, input.rows, input.columns};
    quantize({data.data(), scales.data(), &scale, input.rows, input.columns}, input);
  }

  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  nvfp4::QuantizedMatrix view;
};

/// The slots (token · topk + rank) of each local expert.
std::vector<std::vector<std::int64_t>> slots_by_expert(const nvfp4::MoeInput& input,
                                                       const nvfp4::MoeLayer& layer) {
  const nvfp4::MoeShape shape = layer.shape(input.hidden.rows, input.topk_ids.columns);
  const std::int64_t ids = shape.global_experts != 0 ? shape.global_experts : shape.experts;
  const auto* const topk_ids = input.topk_ids.data_as<const std::int32_t>();
  const auto* const expert_map = layer.expert_map.data_as<const std::int32_t>();
  std::vector<std::vector<std::int64_t>> slots(size_of(shape.experts));
  for (std::int64_t slot = 0; slot < shape.tokens * shape.topk; ++slot) {
    const std::int32_t id = topk_ids[slot];
    if (id < 0 || id >= ids) {
      continue;
    }
    const std::int32_t expert = expert_map != nullptr ? expert_map[id] : id;
    if (expert >= 0 && expert < shape.experts) {
      slots[size_of(expert)].push_back(slot);
    }
  }
  return slots;
}

/// What one expert computes for its slots.
class Expert {
 public:
  Expert(const nvfp4::MoeLayer& layer, std::int64_t expert, bool rounds_gemms)
      : layer_(layer),
        up_(of(layer.up, expert)),
        down_(of(layer.down, expert)),
        up_decode_(layer.up.decode[expert]),
        down_decode_(layer.down.decode[expert]),
        up_bias_(bias_of(layer.up, expert)),
        down_bias_(bias_of(layer.down, expert)),
        rounds_gemms_(rounds_gemms) {}

  /// SwiGLU(x · upᵀ + bias), bf16 [slots, width]. dot(token, row, j): the dot product of a token
  /// and a row of weights, without the expert's decode scale.
  template <class Dot>
  std::vector<std::uint16_t> activations(const Dot& dot, const std::vector<std::int64_t>& slots,
                                         std::int64_t topk) const {
    const std::int64_t width = layer_.down.columns;
    const bool halves = layer_.layout == nvfp4::GateUpLayout::halves;
    std::vector<std::uint16_t> y(slots.size() * size_of(width));
    Rows pair(2, layer_.up.columns);
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t gate_row = halves ? column : 2 * column;
      const std::int64_t up_row = halves ? width + column : 2 * column + 1;
      pair.read(0, up_, gate_row);
      pair.read(1, up_, up_row);
      for (std::size_t row = 0; row < slots.size(); ++row) {
        const std::int64_t token = slots[row] / topk;
        const double gate = first_result(dot(token, pair, 0), gate_row);
        const double up = first_result(dot(token, pair, 1), up_row);
        y[row * size_of(width) + size_of(column)] = swiglu(gate, up, layer_.activation);
      }
    }
    return y;
  }

  /// y · downᵀ + bias into the rows of `slots` of [slots of all experts, hidden].
  void add_results(float* results, const std::vector<std::int64_t>& slots,
                   const std::vector<std::uint16_t>& y) const {
    const std::int64_t width = layer_.down.columns;
    if (layer_.is_w4a16()) {
      add_dots(results, slots, [&](std::int64_t row, const Rows& right) {
        return 0.5 * twice_dot(y.data() + row * width, right, 0);
      });
      return;
    }
    // Matrices with a scale each: of one row, or of all rows.
    const auto rows = static_cast<std::int64_t>(slots.size());
    const std::int64_t rows_of_scale = layer_.dynamic_activation_scale ? 1 : rows;
    std::vector<Rows> matrices;
    std::vector<double> decodes;
    for (std::int64_t row = 0; row < rows; row += rows_of_scale) {
      const MatrixView part(DataType::bf16, y.data() + row * width, rows_of_scale, width);
      const nvfp4::GlobalScale scale = !layer_.dynamic_activation_scale ? *layer_.activation_scale
                                       : rounds_gemms_                  ? power_of_two_scale(part)
                                                       : compute_global_scale(part);
      matrices.push_back(all_rows(OwnedMatrix(part, scale).view));
      decodes.push_back(0.25 * double{scale.decode});
    }
    add_dots(results, slots, [&](std::int64_t row, const Rows& right) {
      const std::size_t of = size_of(row / rows_of_scale);
      return decodes[of] * four_times_dot(matrices[of], row % rows_of_scale, right, 0);
    });
  }

 private:
  template <class Dot>
  void add_dots(float* results, const std::vector<std::int64_t>& slots, const Dot& dot) const {
    const std::int64_t hidden = layer_.down.rows;
    Rows right(1, layer_.down.columns);
    for (std::int64_t column = 0; column < hidden; ++column) {
      right.read(0, down_, column);
      for (std::size_t row = 0; row < slots.size(); ++row) {
        results[slots[row] * hidden + column] = static_cast<float>(
            intermediate(double{down_decode_} * dot(static_cast<std::int64_t>(row), right) +
                         at(down_bias_, column)));
      }
    }
  }

  /// Of the first GEMM, which W4A16 never rounds.
  double first_result(double dot, std::int64_t row) const noexcept {
    const double value = double{up_decode_} * dot + at(up_bias_, row);
    return layer_.is_w4a16() ? value : intermediate(value);
  }

  static nvfp4::QuantizedMatrix of(const nvfp4::MoeWeights& weights, std::int64_t expert) noexcept {
    return {weights.data + size_of(expert) * nvfp4::data_bytes(weights.rows, weights.columns),
            weights.scales + size_of(expert) * nvfp4::scales_bytes(weights.rows, weights.columns),
            nullptr, weights.rows, weights.columns};
  }

  static const std::uint16_t* bias_of(const nvfp4::MoeWeights& weights,
                                      std::int64_t expert) noexcept {
    return weights.bias == nullptr ? nullptr : weights.bias + expert * weights.rows;
  }

  static double at(const std::uint16_t* bias, std::int64_t row) noexcept {
    return bias == nullptr ? 0.0 : double{float_of_bf16(bias[row])};
  }

  double intermediate(double value) const noexcept {
    return rounds_gemms_ ? double{float_of_bf16(rounded(value))} : value;
  }

  const nvfp4::MoeLayer& layer_;
  nvfp4::QuantizedMatrix up_;
  nvfp4::QuantizedMatrix down_;
  float up_decode_;
  float down_decode_;
  const std::uint16_t* up_bias_;  // null: none
  const std::uint16_t* down_bias_;
  bool rounds_gemms_;
};

}  // namespace

void gemm(const MutableMatrixView& output, const nvfp4::QuantizedMatrix& a,
          const nvfp4::QuantizedMatrix& b, const VectorView& bias) {
  const Rows left = all_rows(a);
  const double alpha = 0.25 * double{a.global_scale->decode} * double{b.global_scale->decode};
  const auto* const offsets = bias.data_as<const std::uint16_t>();
  auto* const to = output.data_as<std::uint16_t>();
  Rows right(1, b.columns);
  for (std::int64_t j = 0; j < b.rows; ++j) {
    right.read(0, b, j);
    const double offset = offsets != nullptr ? float_of_bf16(offsets[j]) : 0.0;
    for (std::int64_t i = 0; i < a.rows; ++i) {
      to[i * b.rows + j] = rounded(alpha * four_times_dot(left, i, right, 0) + offset);
    }
  }
}

void gemm(const MutableMatrixView& output, const MatrixView& a, const nvfp4::QuantizedMatrix& b,
          const VectorView& bias) {
  const double alpha = 0.5 * double{b.global_scale->decode};
  const auto* const left = a.data_as<const std::uint16_t>();
  const auto* const offsets = bias.data_as<const std::uint16_t>();
  auto* const to = output.data_as<std::uint16_t>();
  Rows right(1, b.columns);
  std::vector<double> twice(size_of(b.columns));
  for (std::int64_t j = 0; j < b.rows; ++j) {
    right.read(0, b, j);
    for (std::int64_t c = 0; c < b.columns; ++c) {
      twice[size_of(c)] = double{right.scales[size_of(c / kBlock)]} * right.twice[size_of(c)];
    }
    const double offset = offsets != nullptr ? float_of_bf16(offsets[j]) : 0.0;
    for (std::int64_t i = 0; i < a.rows; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < b.columns; ++c) {
        sum += double{float_of_bf16(left[i * a.row_stride + c])} * twice[size_of(c)];
      }
      to[i * b.rows + j] = rounded(alpha * sum + offset);
    }
  }
}

void moe_gemm(const MutableMatrixView& output, const nvfp4::MoeInput& input,
              const nvfp4::MoeLayer& layer, bool rounds_gemms) {
  const std::int64_t tokens = input.hidden.rows;
  const std::int64_t hidden = input.hidden.columns;
  const std::int64_t topk = input.topk_ids.columns;
  const bool w4a16 = layer.is_w4a16();
  const auto* const tokens_bf16 = input.hidden.data_as<const std::uint16_t>();
  const nvfp4::GlobalScale scale = w4a16 ? nvfp4::GlobalScale{} : *input.hidden_scale;
  const OwnedMatrix quantized(w4a16 ? MatrixView(DataType::bf16, nullptr, 0, hidden) : input.hidden,
                              scale);
  const Rows token_rows = all_rows(quantized.view);
  const auto dot = [&](std::int64_t token, const Rows& row, std::int64_t j) {
    return w4a16 ? 0.5 * twice_dot(tokens_bf16 + token * hidden, row, j)
                 : 0.25 * double{scale.decode} * four_times_dot(token_rows, token, row, j);
  };

  const auto slots = slots_by_expert(input, layer);
  std::vector<float> results(size_of(tokens * topk * hidden));
  std::vector<bool> valid(size_of(tokens * topk));
  for (std::size_t e = 0; e < slots.size(); ++e) {
    if (slots[e].empty()) {
      continue;
    }
    const Expert expert(layer, static_cast<std::int64_t>(e), rounds_gemms);
    expert.add_results(results.data(), slots[e], expert.activations(dot, slots[e], topk));
    for (const std::int64_t slot : slots[e]) {
      valid[size_of(slot)] = true;
    }
  }

  const auto* const topk_weights = input.topk_weights.data_as<const float>();
  auto* const to = output.data_as<std::uint16_t>();
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t column = 0; column < hidden; ++column) {
      double sum = 0;
      for (std::int64_t slot = token * topk; slot < (token + 1) * topk; ++slot) {
        if (valid[size_of(slot)]) {
          sum += double{topk_weights[slot]} * double{results[size_of(slot * hidden + column)]};
        }
      }
      to[token * hidden + column] = rounded(sum);
    }
  }
}

}  // namespace cukiln::reference
