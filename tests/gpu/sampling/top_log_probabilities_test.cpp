// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/sampling.hpp>

#include "gpu/sampling/random_logits.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

using sampling::TopLogProbabilities;

constexpr std::size_t kVocabulary = 128256;

struct Found {
  std::vector<std::int32_t> tokens;
  std::vector<float> log_probabilities;
  std::vector<float> of_tokens;
};

struct Fixture : RandomLogits {
  Fixture() : RandomLogits(20251126) {}

  TopLogProbabilities launcher = create<TopLogProbabilities>();
  TestStream stream;

  Found find(const std::vector<float>& logits, std::size_t rows, std::size_t count,
             const std::vector<float>& temperatures, const std::vector<std::int32_t>& given) {
    const auto row_count = static_cast<std::int64_t>(rows);
    const auto columns = static_cast<std::int64_t>(count);
    const auto vocabulary = static_cast<std::int64_t>(logits.size() / rows);
    const DeviceBuffer<float> device_logits(logits);
    const DeviceBuffer<float> temperature(temperatures);
    const DeviceBuffer<std::int32_t> tokens(given);
    DeviceBuffer<std::int32_t> top_tokens(std::vector<std::int32_t>(rows * count, -1));
    DeviceBuffer<float> top(std::vector<float>(rows * count, 9));
    DeviceBuffer<float> of_tokens(std::vector<float>(rows, 9));
    require_ok(launcher.launch(stream, {DataType::i32, top_tokens.data(), row_count, columns},
                               {DataType::f32, top.data(), row_count, columns},
                               {DataType::f32, device_logits.data(), row_count, vocabulary},
                               {DataType::f32, temperature.data(), row_count},
                               {DataType::i32, tokens.data(), row_count},
                               {DataType::f32, of_tokens.data(), row_count}));
    return {top_tokens.download(), top.download(), of_tokens.download()};
  }

  // Against a sort and the softmax in double, row by row.
  void check(const std::vector<float>& logits, std::size_t rows, std::size_t count) {
    const std::size_t vocabulary = logits.size() / rows;
    std::vector<float> temperatures(rows);
    std::vector<std::int32_t> given(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      temperatures[r] = 0.5f + 0.25f * static_cast<float>(r % 5);
      given[r] = static_cast<std::int32_t>(random() % vocabulary);
    }
    const Found found = find(logits, rows, count, temperatures, given);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const row = &logits[r * vocabulary];
      std::vector<std::int32_t> order(vocabulary);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
      const double scale = 1.0 / double{temperatures[r]};
      const double best = row[order[0]];
      double weight = 0;
      for (std::size_t i = 0; i < vocabulary; ++i) weight += std::exp((row[i] - best) * scale);
      const auto wrong = [&](std::int32_t token, float value) {
        const double exact = (row[token] - best) * scale - std::log(weight);
        return !(value == exact || std::abs(value - exact) < 1e-5 + 1e-6 * std::abs(exact));
      };
      std::size_t wrong_tokens = 0;
      std::size_t wrong_values = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong_tokens += found.tokens[r * count + i] != order[i];
        wrong_values += wrong(order[i], found.log_probabilities[r * count + i]);
      }
      CAPTURE(r);
      CHECK(wrong_tokens == 0);
      CHECK(wrong_values == 0);
      CHECK_FALSE(wrong(given[r], found.of_tokens[r]));
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "the largest log-probabilities descend, as a sort and the softmax say") {
  for (const std::size_t count : {0, 1, 5, 20, 32}) {
    CAPTURE(count);
    check(normal_logits(8 * kVocabulary, 3), 8, count);
  }
  for (const std::size_t vocabulary : {32, 37, 1000, 4097, 50257, 1000003}) {
    CAPTURE(vocabulary);
    check(normal_logits(2 * vocabulary, 2), 2, 20);
  }
}

TEST_CASE_FIXTURE(Fixture, "equals, and wherever the largest lie") {
  std::vector<float> equals = normal_logits(4 * kVocabulary, 3);
  for (float& logit : equals) logit = std::round(logit * 2) / 2;
  check(equals, 4, 20);
  check(std::vector<float>(kVocabulary, 1.0f), 1, 32);
  std::vector<float> falling(kVocabulary);
  for (std::size_t i = 0; i < kVocabulary; ++i) falling[i] = -1e-3f * static_cast<float>(i);
  check(falling, 1, 32);
  check({falling.rbegin(), falling.rend()}, 1, 32);
  std::vector<float> one_reader = normal_logits(kVocabulary, 1);  // of all of the best
  for (std::size_t i = 0; i < 32; ++i) one_reader[i / 4 * 8192 + i % 4] += 20;
  check(one_reader, 1, 32);
  std::vector<float> masked(kVocabulary, -std::numeric_limits<float>::infinity());
  masked[3] = -8;
  masked[100000] = -9;
  check(masked, 1, 20);
}

TEST_CASE_FIXTURE(Fixture, "NaN, infinities, greedy temperatures and tokens outside") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  const Found found = find({nan, 0, -inf, 0.5f, 1, inf, inf, nan, -inf, nan, -inf, -inf}, 3, 3,
                           {0, -1, nan}, {2, 4, -1});
  CHECK(found.tokens == std::vector<std::int32_t>{3, 1, 0, 1, 2, 0, 0, 1, 2});
  const float expected[] = {-0.4740769f, -0.9740769f, -inf,        -0.6931472f, -0.6931472f,
                            -inf,        -1.3862944f, -1.3862944f, -1.3862944f};
  for (std::size_t i = 0; i < 9; ++i) {
    CAPTURE(i);
    CHECK((found.log_probabilities[i] == expected[i] ||
           std::abs(found.log_probabilities[i] - expected[i]) < 1e-5));
  }
  CHECK(found.of_tokens[0] == -inf);
  CHECK(std::isnan(found.of_tokens[1]));
  CHECK(std::isnan(found.of_tokens[2]));
}

TEST_CASE_FIXTURE(Fixture, "a batch of any size gives a row the same bits") {
  const auto logits = normal_logits(64 * kVocabulary, 3);
  const std::vector<float> ones(64, 1.0f);
  const std::vector<std::int32_t> given(64, 5);
  const Found all = find(logits, 64, 20, ones, given);
  const Found again = find(logits, 64, 20, ones, given);
  CHECK(again.tokens == all.tokens);
  CHECK(again.log_probabilities == all.log_probabilities);
  const Found one = find({logits.begin(), logits.begin() + kVocabulary}, 1, 20, {1.0f}, {5});
  CHECK(one.log_probabilities ==
        std::vector<float>(all.log_probabilities.begin(), all.log_probabilities.begin() + 20));
  CHECK(one.of_tokens[0] == all.of_tokens[0]);
}

TEST_CASE_FIXTURE(Fixture, "bad arguments of the largest log-probabilities are refused") {
  DeviceBuffer<float> logits(100);
  DeviceBuffer<std::int32_t> tokens(100);
  DeviceBuffer<float> top(100);
  const MatrixView given(DataType::f32, logits.data(), 2, 50);
  const auto launch = [&](std::int64_t count, std::int64_t rows, const VectorView& of = {}) {
    return launcher.launch(stream, {DataType::i32, tokens.data(), rows, count},
                           {DataType::f32, top.data(), rows, count}, given, {}, of);
  };
  CHECK(refusal(launch(33, 2)).find("expected 0 to 32 columns") != std::string::npos);
  CHECK(refusal(launch(5, 3)).find("top_tokens is [3, 5]; expected [2, 5]") != std::string::npos);
  CHECK(refusal(launch(5, 2, {DataType::i32, tokens.data(), 2}))
            .find("token_log_probabilities is absent") != std::string::npos);
  CHECK(refusal(TopLogProbabilities().launch(stream, {}, {}, given)).find("TopLogProbabilities") !=
        std::string::npos);
}

}  // namespace cukiln::testing
