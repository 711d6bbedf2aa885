// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/sampling.hpp>

#include "gpu/sampling/random_logits.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

using sampling::FilterOrder;
using sampling::State;

struct RowSettings {
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  FilterOrder order = FilterOrder::top_k_first;
};

struct Draws {
  std::vector<std::int32_t> tokens;
  std::vector<float> log_probabilities;
};

DeviceBuffer<State> state_of(std::uint64_t seed, std::uint64_t offset = 0) {
  return DeviceBuffer<State>(std::vector<State>{{seed, offset, 0, 0}});
}

struct Fixture : RandomLogits {
  Fixture() : RandomLogits(20250604) {}

  sampling::Sampler sampler = create<sampling::Sampler>();
  TestStream stream;

  // `rows` draws from one and the same row.
  Draws draw_all(const std::vector<float>& logits, std::size_t rows, const RowSettings& settings,
                 DeviceBuffer<State>& state) {
    const DeviceBuffer<float> row(logits);
    const DeviceBuffer<float> temperature(std::vector<float>(rows, settings.temperature));
    const DeviceBuffer<std::int32_t> top_k(std::vector<std::int32_t>(rows, settings.top_k));
    const DeviceBuffer<float> top_p(std::vector<float>(rows, settings.top_p));
    const DeviceBuffer<float> min_p(std::vector<float>(rows, settings.min_p));
    DeviceBuffer<std::int32_t> tokens(std::vector<std::int32_t>(rows, -1));
    DeviceBuffer<float> log_probabilities(std::vector<float>(rows, 1));
    const auto count = static_cast<std::int64_t>(rows);
    sampling::Parameters parameters;
    parameters.temperature = {DataType::f32, temperature.data(), count};
    parameters.top_k = {DataType::i32, top_k.data(), count};
    parameters.top_p = {DataType::f32, top_p.data(), count};
    parameters.min_p = {DataType::f32, min_p.data(), count};
    parameters.order = settings.order;
    require_ok(sampler.launch(
        stream, {DataType::i32, tokens.data(), count},
        {DataType::f32, row.data(), count, static_cast<std::int64_t>(logits.size()), 0}, parameters,
        state.data(), {DataType::f32, log_probabilities.data(), count}));
    return {tokens.download(), log_probabilities.download()};
  }
  std::vector<std::int32_t> draw(const std::vector<float>& logits, std::size_t rows,
                                 const RowSettings& settings, DeviceBuffer<State>& state) {
    return draw_all(logits, rows, settings, state).tokens;
  }
};

// Probabilities after filtering, by sorting, in double. `slack` widens every threshold by that
// share.
std::vector<double> probabilities(const std::vector<float>& logits, const RowSettings& settings,
                                  double slack = 0) {
  const std::size_t count = logits.size();
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const double top = logits[order[0]];
  std::vector<double> weight(count);
  for (std::size_t i = 0; i < count; ++i) {
    weight[i] = std::exp((logits[i] - top) / settings.temperature);
  }
  const bool by_top_k = settings.top_k > 0 && settings.top_k < static_cast<int>(count);
  const float kth = by_top_k ? logits[order[static_cast<std::size_t>(settings.top_k) - 1]]
                             : -std::numeric_limits<float>::infinity();
  double base = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (settings.order == FilterOrder::joint || logits[i] >= kth) base += weight[i];
  }
  std::vector<double> kept(count, 0.0);
  double larger = 0;  // weight of tokens with a larger logit
  double seen = 0;
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t token = order[i];
    if (i == 0 || logits[token] < logits[order[i - 1]]) larger = seen;
    seen += weight[token];
    const bool in_nucleus =
        settings.top_p >= 1 || larger == 0 || larger < settings.top_p * base * (1 + slack);
    if (in_nucleus && logits[token] >= kth && weight[token] >= settings.min_p * (1 - slack)) {
      kept[token] = weight[token];
      total += weight[token];
    }
  }
  for (double& p : kept) p /= total;
  return kept;
}

// Pearson's statistic over the tokens expected 8 times or more, the others together, as standard
// deviations of its distribution (Wilson and Hilferty's approximation).
double chi_square_deviations(const std::vector<std::int32_t>& tokens,
                             const std::vector<double>& p) {
  std::vector<double> counts(p.size(), 0.0);
  for (const std::int32_t token : tokens) counts[static_cast<std::size_t>(token)] += 1;
  double statistic = 0;
  double rest_expected = 0;
  double rest_counted = 0;
  int cells = 0;
  const auto draws = static_cast<double>(tokens.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] * draws >= 8) {
      statistic += (counts[i] - p[i] * draws) * (counts[i] - p[i] * draws) / (p[i] * draws);
      ++cells;
    } else {
      rest_expected += p[i] * draws;
      rest_counted += counts[i];
    }
  }
  if (rest_expected >= 8) {
    statistic += (rest_counted - rest_expected) * (rest_counted - rest_expected) / rest_expected;
    ++cells;
  }
  if (cells < 2) return 0;
  const double freedom = cells - 1;
  const double variance = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - variance)) / std::sqrt(variance);
}

struct DrawFixture : Fixture {
  // Draws follow the filtered distribution, never lie outside it, and have its log-probabilities.
  void check_draws(const std::vector<float>& logits, std::size_t draws,
                   const RowSettings& settings) {
    DeviceBuffer<State> state = state_of(random());
    const auto [tokens, log_probabilities] = draw_all(logits, draws, settings, state);
    const auto allowed = probabilities(logits, settings, 1e-5);
    std::size_t outside = 0;
    for (const std::int32_t token : tokens) {
      const bool valid = token >= 0 && token < static_cast<std::int32_t>(logits.size());
      REQUIRE(valid);
      outside += allowed[static_cast<std::size_t>(token)] == 0;
    }
    CHECK(outside == 0);
    // Under one in a million for a right sampler, and the seed is fixed.
    const auto exact = probabilities(logits, settings);
    CHECK(chi_square_deviations(tokens, exact) < 5);
    // Of 100,000 tokens that are about equally likely, one at the threshold may be kept or not.
    const auto fewest = probabilities(logits, settings, -1e-5);
    double error = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto token = static_cast<std::size_t>(tokens[i]);
      const double least = std::log(allowed[token]);
      const double most = std::log(std::max(exact[token], fewest[token]));
      const double given = log_probabilities[i];
      if (exact[token] > 0) error = std::max({error, least - given, given - most});
    }
    CHECK(error < 1e-5);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "temperature 0 takes the largest logit, lowest index among equals") {
  for (const std::size_t vocabulary : {1, 7, 1000, 4097, 50257, 128256, 409600, 4194304}) {
    for (const std::size_t offset : {0, 1}) {  // aligned and not
      CAPTURE(vocabulary);
      constexpr std::size_t kRows = 3;
      const std::size_t stride = vocabulary + offset;
      std::vector<float> host = normal_logits(offset + kRows * stride, 2);
      for (float& logit : host) logit = std::round(logit * 4) / 4;  // many equals
      host[offset + stride] = std::numeric_limits<float>::quiet_NaN();
      for (std::size_t i = 0; i < vocabulary; ++i) {
        host[offset + 2 * stride + i] = i % 2 == 0 ? -0.0f : 0.0f;
      }
      const DeviceBuffer<float> logits(host);
      const DeviceBuffer<float> temperature(std::vector<float>{0, -1, 0});
      DeviceBuffer<std::int32_t> tokens(std::vector<std::int32_t>(kRows, -1));
      DeviceBuffer<State> state = state_of(1);
      sampling::Parameters parameters;
      parameters.temperature = {DataType::f32, temperature.data(), kRows};
      require_ok(
          sampler.launch(stream, {DataType::i32, tokens.data(), kRows},
                         {DataType::f32, logits.data() + offset, kRows,
                          static_cast<std::int64_t>(vocabulary), static_cast<std::int64_t>(stride)},
                         parameters, state.data()));
      const auto given = tokens.download();
      for (std::size_t row = 0; row < kRows; ++row) {
        std::size_t best = 0;
        float largest = -std::numeric_limits<float>::infinity();
        for (std::size_t i = 0; i < vocabulary; ++i) {
          if (host[offset + row * stride + i] > largest) {
            largest = host[offset + row * stride + i];
            best = i;
          }
        }
        CHECK(given[row] == static_cast<std::int32_t>(best));
      }
    }
  }
}

TEST_CASE_FIXTURE(DrawFixture,
                  "tokens come from the filtered distribution and never from outside it") {
  struct Case {
    const char* name;
    std::size_t vocabulary;
    float deviation;
    RowSettings settings;
    std::size_t draws;
  };
  constexpr FilterOrder kJoint = FilterOrder::joint;
  const Case cases[] = {
      {"unfiltered", 16, 1, {}, 20000},
      {"temperature", 300, 1, {0.7f}, 20000},
      {"top-k", 1000, 3, {0.8f, 50}, 20000},
      {"top-k 2", 1000, 3, {1, 2}, 200},
      {"top-p", 1000, 3, {1, 0, 0.9f}, 20000},
      {"top-p 0", 1000, 3, {1, 0, 0}, 200},
      {"min-p", 1000, 3, {1, 0, 1, 0.1f}, 20000},
      {"top-k, then top-p", 1000, 2, {1, 20, 0.8f}, 20000},
      {"top-k and top-p", 1000, 2, {1, 20, 0.8f, 0, kJoint}, 20000},
      {"all", 1000, 2, {1.3f, 100, 0.95f, 0.02f}, 20000},
      {"large", 128256, 3, {0.8f, 50, 0.9f}, 4000},
      {"large, unfiltered", 128256, 3, {0.8f}, 4000},
      {"large nucleus", 128256, 3, {0.9f, 0, 0.95f}, 1000},
      {"flat, top-p", 6001, 0.001f, {1, 0, 0.9f}, 1000},
      {"flat, top-k", 9001, 0.5f, {1, 5000}, 1000},
      {"flat, top-k, then top-p", 6001, 0.001f, {1, 5000, 0.9f}, 1000},
      {"flat, top-k and top-p", 6001, 0.001f, {1, 5500, 0.9f, 0, kJoint}, 1000},
      {"far-off top-k", 20000, 1, {1, 1500}, 1000},
      {"large vocabulary", 1000000, 2, {1, 40, 0.95f}, 500},
  };
  for (const Case& item : cases) {
    CAPTURE(item.name);
    std::vector<float> logits = normal_logits(item.vocabulary, item.deviation);
    if (item.vocabulary == 1000) {  // equals at the thresholds
      for (float& logit : logits) logit = std::round(logit * 10) / 10;
    }
    check_draws(logits, item.draws, item.settings);
  }
}

TEST_CASE_FIXTURE(DrawFixture, "top-p's threshold is exact, however the logits are distributed") {
  constexpr std::size_t kVocabulary = 128256;
  std::vector<std::size_t> rank(kVocabulary);
  for (std::size_t i = 0; i < kVocabulary; ++i) rank[i] = i;
  std::vector<float> falling(kVocabulary);  // the samples of a thread tell little of other threads'
  std::vector<float> sorted(kVocabulary);   // Zipf's, in the order of likelihood
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    falling[i] = -1e-3f * static_cast<float>(i);
    sorted[i] = -std::log(static_cast<float>(i + 1));
  }
  std::shuffle(rank.begin(), rank.end(), random);
  std::vector<float> zipf(kVocabulary);
  std::vector<float> equals(kVocabulary);  // thousands of equals at the threshold
  std::vector<float> few(kVocabulary, -20.0f);
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    zipf[i] = sorted[rank[i]];
    equals[i] = std::round(zipf[i] * 16) / 16;
  }
  few[5] = 19;
  few[77777] = 20;
  const std::vector<float> constant(kVocabulary, 1.0f);
  const auto normal = normal_logits(kVocabulary, 3);
  const std::vector<float>* const kinds[] = {&falling, &sorted,   &zipf,  &equals,
                                             &few,     &constant, &normal};
  for (const std::vector<float>* logits : kinds) {
    for (const float top_p : {0.1f, 0.5f, 0.9f, 0.999f}) {
      CAPTURE(logits->at(0));
      CAPTURE(top_p);
      check_draws(*logits, 1000, {1, 0, top_p});
    }
  }
  check_draws(zipf, 1000, {1, 0, 0.9f, 1e-4f});
  check_draws(normal, 1000, {0.8f, 20000, 0.9f});
  check_draws(normal, 1000, {0.8f, 20000, 0.99f, 0, FilterOrder::joint});
  check_draws(normal, 1000, {0.01f, 0, 0.9f});
  check_draws(normal, 1000, {100, 0, 0.9f});
}

TEST_CASE_FIXTURE(Fixture, "a million draws follow the exact probabilities") {
  constexpr std::size_t kRows = 20000;
  const RowSettings cases[] = {
      {0.8f, 50, 0.9f}, {1}, {1, 0, 0.9f}, {1, 0, 0.2f}, {1, 0, 0.9f, 0.3f}, {1.5f, 0, 1, 0.01f}};
  for (const RowSettings& settings : cases) {
    CAPTURE(settings.temperature);
    const auto logits = normal_logits(2000, 2);
    DeviceBuffer<State> state = state_of(random());
    std::vector<std::int32_t> tokens;
    for (int launch = 0; launch < 50; ++launch) {
      const auto more = draw(logits, kRows, settings, state);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    CHECK(chi_square_deviations(tokens, probabilities(logits, settings)) < 5);
  }
}

TEST_CASE_FIXTURE(Fixture, "a row is greedy with top-k 1, by the plain softmax") {
  for (const std::size_t vocabulary : {5, 4001, 128256}) {
    const auto logits = normal_logits(vocabulary, 3);
    DeviceBuffer<State> state = state_of(1);
    const Draws greedy = draw_all(logits, 2, {0, 1, 0.5f, 0.5f}, state);
    const Draws best = draw_all(logits, 2, {1.5f, 1, 0.5f}, state);
    CHECK(best.tokens == greedy.tokens);
    CHECK(best.log_probabilities == greedy.log_probabilities);
    const auto exact = probabilities(logits, {});
    const double p = exact[static_cast<std::size_t>(greedy.tokens[0])];
    CHECK(p == *std::max_element(exact.begin(), exact.end()));
    CHECK(std::abs(std::log(p) - greedy.log_probabilities[0]) < 1e-5);
  }
}

TEST_CASE_FIXTURE(Fixture, "where the best tokens lie changes nothing") {
  constexpr std::size_t kVocabulary = 128256;
  const RowSettings settings{1, 50, 0.9f};
  DeviceBuffer<State> state = state_of(11);
  // Side by side at either end, and all else far away or forbidden.
  std::vector<float> falling(kVocabulary);
  for (std::size_t i = 0; i < kVocabulary; ++i) falling[i] = -1e-3f * static_cast<float>(i);
  std::vector<float> rising(falling.rbegin(), falling.rend());
  for (const auto& logits : {falling, rising}) {
    const auto tokens = draw(logits, 2000, settings, state);
    CHECK(chi_square_deviations(tokens, probabilities(logits, settings)) < 5);
  }
  std::vector<float> masked(kVocabulary, -std::numeric_limits<float>::infinity());
  masked[3] = -8;
  masked[100000] = -9;
  std::set<std::int32_t> seen;
  for (const std::int32_t token : draw(masked, 2000, {1, 50}, state)) seen.insert(token);
  CHECK(seen == std::set<std::int32_t>{3, 100000});
  const std::vector<float> forbidden(5, -std::numeric_limits<float>::infinity());
  seen.clear();
  for (const std::int32_t token : draw(forbidden, 2000, {1, 2}, state)) seen.insert(token);
  CHECK(seen == std::set<std::int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE_FIXTURE(Fixture,
                  "the same seed and offset repeat a draw, and every launch moves the offset") {
  const auto logits = normal_logits(5000, 1);
  const RowSettings settings{0.9f, 200, 0.95f};
  DeviceBuffer<State> state = state_of(42, 7);
  const auto first = draw(logits, 300, settings, state);
  CHECK(state.download()[0].offset == 8);
  CHECK(state.download()[0].ticket == 0);
  const auto second = draw(logits, 300, settings, state);
  CHECK(first != second);
  DeviceBuffer<State> again = state_of(42, 7);
  CHECK(draw(logits, 300, settings, again) == first);
  DeviceBuffer<State> other = state_of(43, 7);
  CHECK(draw(logits, 300, settings, other) != first);
}

TEST_CASE_FIXTURE(Fixture, "a row with a seed of its own draws the same wherever it is") {
  constexpr std::size_t kRows = 100;
  constexpr std::size_t kVocabulary = 5000;
  const DeviceBuffer<float> logits(normal_logits(kVocabulary, 1));
  std::vector<sampling::RowSeed> ascending(kRows);
  for (std::size_t i = 0; i < kRows; ++i) ascending[i] = {i, 7};
  const std::vector<sampling::RowSeed> descending(ascending.rbegin(), ascending.rend());
  const auto draw_with = [&](DeviceBuffer<sampling::RowSeed>& seeds) {
    DeviceBuffer<std::int32_t> tokens(kRows);
    sampling::Parameters parameters;
    parameters.row_seeds = seeds.data();
    require_ok(sampler.launch(stream, {DataType::i32, tokens.data(), kRows},
                              {DataType::f32, logits.data(), kRows, kVocabulary, 0}, parameters,
                              nullptr));
    return tokens.download();
  };
  DeviceBuffer<sampling::RowSeed> seeds(ascending);
  const auto first = draw_with(seeds);
  CHECK(std::set<std::int32_t>(first.begin(), first.end()).size() > 50);
  for (std::size_t i = 0; i < kRows; ++i) {
    CHECK(seeds.download()[i].seed == i);
    CHECK(seeds.download()[i].offset == 8);
  }
  CHECK(draw_with(seeds) != first);
  DeviceBuffer<sampling::RowSeed> elsewhere(descending);
  const auto reversed = draw_with(elsewhere);
  CHECK(std::vector<std::int32_t>(reversed.rbegin(), reversed.rend()) == first);
}

TEST_CASE_FIXTURE(Fixture, "replays of a captured sampler draw anew") {
  const DeviceBuffer<float> logits(normal_logits(1000, 1));
  DeviceBuffer<std::int32_t> tokens(64);
  DeviceBuffer<State> state = state_of(5);
  TestGraph graph(stream, [&] {
    require_ok(sampler.launch(stream, {DataType::i32, tokens.data(), 64},
                              {DataType::f32, logits.data(), 64, 1000, 0}, {}, state.data()));
  });
  std::set<std::vector<std::int32_t>> draws;
  for (int replay = 0; replay < 5; ++replay) {
    graph.launch(stream);
    draws.insert(tokens.download());
  }
  CHECK(draws.size() == 5);
  CHECK(state.download()[0].offset == 5);
}

TEST_CASE_FIXTURE(Fixture, "a NaN is never drawn, and infinities share the row") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  DeviceBuffer<State> state = state_of(9);
  for (const RowSettings& settings : {RowSettings{}, RowSettings{1, 3}, RowSettings{1, 0, 0.99f}}) {
    for (const std::int32_t token : draw({nan, 0, -infinity, 0.5f, nan}, 500, settings, state)) {
      CHECK((token == 1 || token == 3));
    }
    for (const std::int32_t token : draw({1, infinity, 3, infinity, nan}, 500, settings, state)) {
      CHECK((token == 1 || token == 3));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "16-bit logits draw what the same values draw as f32") {
  constexpr std::size_t kVocabulary = 3001;
  constexpr std::size_t kRows = 200;
  std::vector<float> logits(kVocabulary);
  std::vector<std::uint16_t> bf16(kVocabulary);
  std::vector<std::uint16_t> f16(kVocabulary);
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    // Eighths from 1 to 16: exact in every format.
    const auto sign = static_cast<std::uint32_t>(random() % 2 << 31);
    logits[i] = std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(8 + random() % 120) / 8));
    const auto bits = std::bit_cast<std::uint32_t>(logits[i]);
    bf16[i] = static_cast<std::uint16_t>(bits >> 16);
    f16[i] = static_cast<std::uint16_t>((bits >> 16 & 0x8000) |
                                        (((bits & 0x7FFFFFFF) - (112 << 23)) >> 13));
  }
  const DeviceBuffer<float> wide(logits);
  const DeviceBuffer<std::int32_t> top_k(std::vector<std::int32_t>(kRows, 40));
  for (std::int32_t* filter : {static_cast<std::int32_t*>(nullptr), top_k.data()}) {
    const auto tokens_of = [&](const sampling::Sampler& by, DataType type, const void* row) {
      sampling::Parameters parameters;
      parameters.top_k = {DataType::i32, filter, kRows};
      DeviceBuffer<std::int32_t> tokens(kRows);
      DeviceBuffer<State> state = state_of(3);
      require_ok(by.launch(stream, {DataType::i32, tokens.data(), kRows},
                           {type, row, kRows, kVocabulary, 0}, parameters, state.data()));
      return tokens.download();
    };
    const auto expected = tokens_of(sampler, DataType::f32, wide.data());
    CHECK(tokens_of(create<sampling::Sampler>(DataType::bf16), DataType::bf16,
                    DeviceBuffer<std::uint16_t>(bf16).data()) == expected);
    CHECK(tokens_of(create<sampling::Sampler>(DataType::f16), DataType::f16,
                    DeviceBuffer<std::uint16_t>(f16).data()) == expected);
  }
}

TEST_CASE_FIXTURE(Fixture, "the sampler refuses what it cannot do") {
  DeviceBuffer<float> logits(64);
  DeviceBuffer<std::int32_t> tokens(1);
  DeviceBuffer<State> state = state_of(1);
  const auto refused = [&](const MatrixView& from, State* random_state) {
    return refusal(
        sampler.launch(stream, {DataType::i32, tokens.data(), 1}, from, {}, random_state));
  };
  CHECK(refused({DataType::f32, logits.data(), 1, 0}, state.data()) ==
        "logits are [1, 0]; expected a vocabulary of 1 to 4194304");
  CHECK(refused({DataType::f32, logits.data(), -1, 64}, state.data()) ==
        "logits are [-1, 64]; expected 0 to 268435455 rows");
  CHECK(refused({DataType::f16, logits.data(), 1, 64}, state.data()) ==
        "logits is f16; expected f32");
  CHECK(refused({DataType::f32, logits.data(), 2, 32}, state.data()) ==
        "tokens is [1]; expected [2]");
  CHECK(refused({DataType::f32, logits.data(), 1, 64}, nullptr) ==
        "state is null; expected a device pointer");
}

}  // namespace cukiln::testing
