// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixtures of experts for tests: inputs, and results in double.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/moe.hpp>

#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "nvfp4/host/moe_plan.hpp"

namespace cukiln::testing {

inline constexpr std::array<double, 16> kE2m1Values = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                                       -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

inline std::size_t index_of(std::int64_t value) { return static_cast<std::size_t>(value); }

/// [rows, columns] out of packed data and swizzled scales.
inline std::vector<double> dequantised(const std::uint8_t* data, const std::uint8_t* scales,
                                       std::size_t rows, std::size_t columns, double decode) {
  std::vector<double> made(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::uint8_t pair = data[(row * columns + column) / 2];
      made[row * columns + column] =
          kE2m1Values[column % 2 != 0 ? pair >> 4 : pair & 15] *
          float_of_ue4m3(scales[nvfp4::scale_offset(row, column / 16, columns)]) * decode;
    }
  }
  return made;
}

/// What the two GEMMs' results are rounded to, before SwiGLU and before the sum over ranks.
enum class GemmResults {
  floats,
  /// All global scales are then powers of two, so that a number rounds to the same bf16 in whatever
  /// order it is multiplied by them.
  bf16,
};

/// Experts' weights [experts, rows, columns] on both sides. Padding of the scales is NaN, because
/// no kernel may use it.
struct MoeMatrices {
  MoeMatrices(std::int64_t expert_count, std::int64_t row_count, std::int64_t column_count,
              bool has_bias, GemmResults results, std::mt19937_64& random)
      : experts(expert_count), rows(row_count), columns(column_count) {
    const std::size_t scale_bytes = nvfp4::scales_bytes(rows, columns);
    std::vector<std::uint8_t> data(index_of(experts) * nvfp4::data_bytes(rows, columns));
    std::vector<std::uint8_t> scales(index_of(experts) * scale_bytes, 0x7F);
    std::vector<float> decode(index_of(experts));
    for (std::uint8_t& pair : data) pair = static_cast<std::uint8_t>(random());
    for (std::size_t e = 0; e < index_of(experts); ++e) {
      for (std::size_t row = 0; row < index_of(rows); ++row) {
        for (std::size_t block = 0; block < index_of(columns) / 16; ++block) {
          scales[e * scale_bytes + nvfp4::scale_offset(row, block, index_of(columns))] =
              static_cast<std::uint8_t>(0x20 + random() % 0x20);
        }
      }
      decode[e] = results == GemmResults::bf16
                      ? std::ldexp(1.0f, -5 - static_cast<int>(random() % 3))
                      : 0.01f + static_cast<float>(random() % 100) * 1e-4f;
      dense.push_back(dequantised(&data[e * nvfp4::data_bytes(rows, columns)],
                                  &scales[e * scale_bytes], index_of(rows), index_of(columns),
                                  decode[e]));
    }
    device_data = std::make_unique<DeviceBuffer<std::uint8_t>>(data);
    device_scales = std::make_unique<DeviceBuffer<std::uint8_t>>(scales);
    device_decode = std::make_unique<DeviceBuffer<float>>(decode);
    if (has_bias) {
      bias = random_bf16(Kind::normal, index_of(experts * rows), random);
      device_bias = std::make_unique<DeviceBuffer<std::uint16_t>>(bias);
    }
  }
  nvfp4::MoeWeights view() const {
    return {device_data->data(),
            device_scales->data(),
            device_decode->data(),
            experts,
            rows,
            columns,
            device_bias ? device_bias->data() : nullptr};
  }
  double bias_of(std::int64_t expert, std::size_t row) const {
    return bias.empty() ? 0 : float_of_bf16(bias[index_of(expert * rows) + row]);
  }

  std::int64_t experts;
  std::int64_t rows;
  std::int64_t columns;

  std::vector<std::vector<double>> dense;
  std::vector<std::uint16_t> bias;  // empty: none
  std::unique_ptr<DeviceBuffer<std::uint8_t>> device_data;
  std::unique_ptr<DeviceBuffer<std::uint8_t>> device_scales;
  std::unique_ptr<DeviceBuffer<float>> device_decode;
  std::unique_ptr<DeviceBuffer<std::uint16_t>> device_bias;
};

struct MoeCase {
  nvfp4::MoeShape shape;
  nvfp4::GateUpLayout layout = nvfp4::GateUpLayout::halves;
  nvfp4::SwiGlu activation{};
  bool has_biases = false;
};

/// A mixture of experts, its inputs and its result in double.
struct MoeProblem {
  MoeProblem(const MoeCase& of, std::mt19937_64& random,
             GemmResults rounded_to = GemmResults::floats)
      : shape(of.shape),
        layout(of.layout),
        activation(of.activation),
        results(rounded_to),
        up(shape.experts, 2 * shape.width, shape.hidden, of.has_biases, results, random),
        down(shape.experts, shape.hidden, shape.width, of.has_biases, results, random),
        hidden(random_bf16(Kind::normal, index_of(shape.tokens * shape.hidden), random)),
        ids(index_of(shape.tokens * shape.topk)),
        weights(ids.size()),
        hidden_scale(scale_of(amax_of(hidden))) {
    std::uniform_real_distribution<float> uniform(0, 1);
    for (float& weight : weights) weight = uniform(random);
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random() % index_of(global_experts()));
    }
  }

  std::int64_t global_experts() const {
    return shape.global_experts == 0 ? shape.experts : shape.global_experts;
  }

  /// The local expert, or -1.
  std::int64_t expert_of(std::size_t slot) const {
    if (ids[slot] < 0 || ids[slot] >= global_experts()) return -1;
    const std::int64_t expert = map.empty() ? ids[slot] : map[index_of(ids[slot])];
    return expert >= 0 && expert < shape.experts ? expert : -1;
  }

  nvfp4::GlobalScale scale_of(float amax) const {
    const nvfp4::GlobalScale scale = global_scale_of_amax(amax);
    if (results == GemmResults::floats) return scale;
    const float encode = std::exp2(std::floor(std::log2(scale.encode)));
    return {encode, 1 / encode};
  }

  /// A row's own, if the scale is dynamic. A power of two is the largest with which no block's
  /// scale rounds above 448.
  nvfp4::GlobalScale row_scale_of(float amax) const {
    if (results == GemmResults::floats || amax == 0) return scale_of(amax);
    const float encode = std::exp2(std::floor(std::log2(464 * 6 / amax)));
    return {encode, 1 / encode};
  }

  double rounded(double result) const {
    return results == GemmResults::floats
               ? result
               : double{float_of_bf16(bf16_of_float(static_cast<float>(result)))};
  }

  /// What the weights are multiplied by: bf16 as it is, or quantised.
  std::vector<double> operands(const std::vector<std::uint16_t>& values, std::size_t rows,
                               std::size_t columns, const nvfp4::GlobalScale& scale) const {
    if (shape.w4a16) {
      std::vector<double> made(values.size());
      std::transform(values.begin(), values.end(), made.begin(), float_of_bf16);
      return made;
    }
    const Quantized quantised = testing::quantize(values, rows, columns, scale);
    return dequantised(quantised.data.data(), quantised.scales.data(), rows, columns, scale.decode);
  }

  /// SwiGLU of one slot's token.
  std::vector<std::uint16_t> activated(const std::vector<double>& x, std::size_t slot) const {
    const std::size_t width = index_of(shape.width);
    const std::size_t k = index_of(shape.hidden);
    const std::vector<double>& w = up.dense[index_of(expert_of(slot))];
    const double* token = &x[slot / index_of(shape.topk) * k];
    const auto dot = [&](std::size_t row) {
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) sum += token[i] * w[row * k + i];
      return rounded(sum + up.bias_of(expert_of(slot), row));
    };
    const bool pairs = layout == nvfp4::GateUpLayout::pairs;
    std::vector<std::uint16_t> y(width);
    for (std::size_t i = 0; i < width; ++i) {
      y[i] = bf16_of_float(static_cast<float>(
          swiglu(dot(pairs ? 2 * i : i), dot(pairs ? 2 * i + 1 : width + i), activation)));
    }
    return y;
  }

  /// Fills `expected`, `magnitude` (the sum of what is added up, without signs) and, if it has not
  /// been set, the scale of the activations.
  void solve() {
    const std::size_t k = index_of(shape.hidden);
    const std::size_t width = index_of(shape.width);
    const auto x = operands(hidden, index_of(shape.tokens), k, hidden_scale);
    std::vector<std::vector<std::uint16_t>> y(ids.size());
    float amax = 0;
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (expert_of(slot) < 0) continue;
      y[slot] = activated(x, slot);
      for (const std::uint16_t bits : y[slot]) amax = std::max(amax, std::abs(float_of_bf16(bits)));
    }
    if (activation_scale.encode == 0) activation_scale = scale_of(amax);
    expected.assign(hidden.size(), 0);
    magnitude.assign(hidden.size(), 0);
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (y[slot].empty()) continue;
      const auto row = operands(
          y[slot], 1, width,
          shape.dynamic_activation_scale ? row_scale_of(amax_of(y[slot])) : activation_scale);
      const std::vector<double>& w = down.dense[index_of(expert_of(slot))];
      const std::size_t at = slot / index_of(shape.topk) * k;
      for (std::size_t column = 0; column < k; ++column) {
        double sum = down.bias_of(expert_of(slot), column);
        double size = std::abs(sum);
        for (std::size_t i = 0; i < width; ++i) {
          sum += row[i] * w[column * width + i];
          size += std::abs(row[i] * w[column * width + i]);
        }
        expected[at + column] += weights[slot] * rounded(sum);
        magnitude[at + column] += weights[slot] * size;
      }
    }
  }

  /// Whether outputs are as exact as sums in float allow, but for the few tokens where a value
  /// between the GEMMs was rounded the other way, by at most a step of E2M1. With W4A16 such steps
  /// are of bf16 and frequent. The second GEMM's results may be rounded to it. After solve().
  void check(const std::vector<std::uint16_t>& given) const {
    if (shape.w4a16) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < given.size(); ++i) {
        const double error = std::abs(float_of_bf16(given[i]) - expected[i]);
        wrong += !(error <= std::abs(expected[i]) / 256 + magnitude[i] / 256);
      }
      CHECK(wrong == 0);
      return;
    }
    const std::size_t k = index_of(shape.hidden);
    // Kernels for many tokens round the second GEMM's results to bf16.
    nvfp4::MoeShape of_plan = shape;
    of_plan.global_experts = global_experts();
    const bool rounds = nvfp4::moe_plan(of_plan, nvfp4::MoeKernels::warpgroups, 132).kernels !=
                        nvfp4::MoeKernels::skinny;
    const double of_sums = std::ldexp(1.0, -18) + (rounds ? std::ldexp(1.0, -8) : 0);
    std::size_t wrong = 0;
    std::size_t moved_tokens = 0;
    for (std::size_t token = 0; token < index_of(shape.tokens); ++token) {
      bool moved = false;
      for (std::size_t i = token * k; i < (token + 1) * k; ++i) {
        const double error = std::abs(float_of_bf16(given[i]) - expected[i]);
        const double rounding = std::abs(expected[i]) / 256;
        moved = moved || !(error <= rounding + magnitude[i] * of_sums);
        wrong += !(error <= rounding + magnitude[i] * 0.02);
      }
      moved_tokens += moved;
    }
    CHECK(wrong == 0);
    CHECK(moved_tokens <= 1 + index_of(shape.tokens) / 20);
  }

  nvfp4::MoeShape shape;
  nvfp4::GateUpLayout layout;
  nvfp4::SwiGlu activation;
  GemmResults results;
  MoeMatrices up;
  MoeMatrices down;
  std::vector<std::uint16_t> hidden;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::int32_t> map;
  nvfp4::GlobalScale hidden_scale;
  nvfp4::GlobalScale activation_scale{0, 0};
  std::vector<double> expected;
  std::vector<double> magnitude;
};

/// A problem's inputs on the device, an output and a workspace, each with a guard behind it.
struct MoeBuffers {
  static constexpr std::size_t kGuard = 64;

  /// `garbage` fills the workspace, which may hold anything.
  MoeBuffers(const MoeProblem& of, std::size_t bytes, unsigned char garbage)
      : problem(of),
        hidden(of.hidden),
        hidden_scale(on_device(of.hidden_scale)),
        activation_scale(on_device(of.activation_scale)),
        ids(of.ids),
        weights(of.weights),
        map(of.map),
        output(of.hidden.size() + kGuard),
        workspace_bytes(bytes),
        workspace(bytes + kGuard),
        guard(garbage) {
    output.fill_bytes(0xA5);
    workspace.fill_bytes(garbage);
    Device::first().synchronize();
  }

  nvfp4::MoeInput input() const {
    const nvfp4::MoeShape& shape = problem.shape;
    nvfp4::MoeInput made;
    made.hidden = bf16(hidden.data(), shape.tokens, shape.hidden);
    if (!shape.w4a16) made.hidden_scale = hidden_scale.data();
    made.topk_ids = {DataType::i32, ids.data(), shape.tokens, shape.topk};
    made.topk_weights = {DataType::f32, weights.data(), shape.tokens, shape.topk};
    return made;
  }
  nvfp4::MoeLayer layer() const {
    nvfp4::MoeLayer made;
    made.up = problem.up.view();
    made.down = problem.down.view();
    made.dynamic_activation_scale = problem.shape.dynamic_activation_scale;
    if (!problem.shape.w4a16 && !made.dynamic_activation_scale) {
      made.activation_scale = activation_scale.data();
    }
    if (!problem.map.empty()) {
      made.expert_map = {DataType::i32, map.data(), static_cast<std::int64_t>(map.size())};
    }
    made.global_experts = problem.shape.global_experts;
    made.layout = problem.layout;
    made.activation = problem.activation;
    return made;
  }

  /// The output, after a look at the guards.
  std::vector<std::uint16_t> result() const {
    auto made = output.download();
    for (std::size_t i = problem.hidden.size(); i < made.size(); ++i) REQUIRE(made[i] == 0xA5A5);
    made.resize(problem.hidden.size());
    const auto bytes = workspace.download();
    for (std::size_t i = workspace_bytes; i < bytes.size(); ++i) REQUIRE(bytes[i] == guard);
    return made;
  }

  const MoeProblem& problem;
  DeviceBuffer<std::uint16_t> hidden;
  DeviceBuffer<nvfp4::GlobalScale> hidden_scale;
  DeviceBuffer<nvfp4::GlobalScale> activation_scale;
  DeviceBuffer<std::int32_t> ids;
  DeviceBuffer<float> weights;
  DeviceBuffer<std::int32_t> map;
  DeviceBuffer<std::uint16_t> output;
  std::size_t workspace_bytes;
  DeviceBuffer<std::uint8_t> workspace;
  unsigned char guard;
};

/// Rows of `columns`: that of `token` is NaN throughout, all others are as expected.
inline void require_nan_in_one_token(const std::vector<std::uint16_t>& given,
                                     const std::vector<std::uint16_t>& expected, std::size_t token,
                                     std::size_t columns) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (i / columns == token) {
      REQUIRE(std::isnan(float_of_bf16(given[i])));
    } else {
      REQUIRE(given[i] == expected[i]);
    }
  }
}

}  // namespace cukiln::testing
