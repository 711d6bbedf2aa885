// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/reference/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace cukiln::reference {

namespace {

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using): takes no attribute

constexpr double kWeightOne = 0x1p40;

/// 64 random bits: the first two words of Philox4x32-10.
std::uint64_t philox(std::uint64_t seed, std::uint64_t offset, std::uint32_t row) noexcept {
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(offset),
                              static_cast<std::uint32_t>(offset >> 32), row, 0};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t low = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t high = std::uint64_t{0xCD9E8D57u} * counter[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(high >> 32) ^ counter[1] ^ key[0],
                                   static_cast<std::uint32_t>(high),
                                   static_cast<std::uint32_t>(low >> 32) ^ counter[3] ^ key[1],
                                   static_cast<std::uint32_t>(low)};
    std::copy(std::begin(next), std::end(next), std::begin(counter));
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return std::uint64_t{counter[1]} << 32 | counter[0];
}

std::uint64_t high_product(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::uint64_t>(Wide{a} * b >> 64);
}

/// A row's tokens with their weights, the best first; among equal ones the lowest index.
struct Row {
  std::vector<float> logits;  // NaN as -inf
  std::vector<std::int32_t> order;
  std::vector<std::uint64_t> weights;  // in the order

  double gap_of(std::int32_t token) const noexcept {
    const double best = logits[static_cast<std::size_t>(order.front())];
    const double own = logits[static_cast<std::size_t>(token)];
    return own == best ? 0.0 : own - best;  // also of equal infinities
  }

  double gap(std::size_t place) const noexcept { return gap_of(order[place]); }

  void weigh(double temperature) {
    weights.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      weights[i] = static_cast<std::uint64_t>(std::exp(gap(i) / temperature) * kWeightOne);
    }
  }

  float logit(std::size_t place) const noexcept {
    return logits[static_cast<std::size_t>(order[place])];
  }

  /// `kept`, increased by the tokens that tie with the last of them.
  std::size_t with_ties(std::size_t kept) const noexcept {
    while (kept < order.size() && logit(kept) == logit(kept - 1)) {
      ++kept;
    }
    return kept;
  }

  std::uint64_t weight_of(std::size_t first) const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < first; ++i) {
      sum += weights[i];
    }
    return sum;
  }
};

/// The parameters of one row.
struct RowParameters {
  float temperature;
  std::int32_t top_k;
  float top_p;
  float min_p;
  sampling::FilterOrder order;

  bool is_greedy() const noexcept { return !(temperature > 0.0f) || top_k == 1; }
};

template <class T>
T value_at(const VectorView& values, std::int64_t row, T otherwise) noexcept {
  return values.data != nullptr ? values.data_as<const T>()[row] : otherwise;
}

RowParameters parameters_of(const sampling::Parameters& parameters, std::int64_t row) noexcept {
  return {value_at(parameters.temperature, row, 1.0f),
          value_at(parameters.top_k, row, std::int32_t{0}), value_at(parameters.top_p, row, 1.0f),
          value_at(parameters.min_p, row, 0.0f), parameters.order};
}

void read_row(Row& row, const MatrixView& logits, std::int64_t index) {
  const float* const from = logits.data_as<const float>() + index * logits.row_stride;
  for (std::size_t i = 0; i < row.logits.size(); ++i) {
    row.logits[i] = from[i] == from[i] ? from[i] : -std::numeric_limits<float>::infinity();
    row.order[i] = static_cast<std::int32_t>(i);
  }
  std::stable_sort(row.order.begin(), row.order.end(), [&](std::int32_t a, std::int32_t b) {
    return row.logits[static_cast<std::size_t>(a)] > row.logits[static_cast<std::size_t>(b)];
  });
}

/// How many of the best tokens the filters leave.
std::size_t kept_tokens(const Row& row, const RowParameters& parameters) {
  const std::size_t size = row.order.size();
  std::size_t kept = size;
  const bool by_top_k = parameters.top_k > 0 && static_cast<std::size_t>(parameters.top_k) < size;
  if (by_top_k) {
    kept = row.with_ties(static_cast<std::size_t>(parameters.top_k));
  }
  if (parameters.top_p < 1.0f) {
    const bool of_row = !by_top_k || parameters.order == sampling::FilterOrder::joint;
    const std::uint64_t base = row.weight_of(of_row ? size : kept);
    const auto share = static_cast<std::uint64_t>(
        std::max(0.0f, parameters.top_p) * 0x1p64f);  // top_p is below 1, so this is below 2^64
    const std::uint64_t limit = std::max<std::uint64_t>(high_product(share, base), 1);
    std::size_t nucleus = 0;
    for (std::uint64_t above = 0; nucleus < kept && above < limit; ++nucleus) {
      above += row.weights[nucleus];
    }
    kept = std::min(kept, row.with_ties(nucleus));
  }
  if (parameters.min_p > 0.0f) {
    std::size_t likely = 1;
    const double least = std::log(double{parameters.min_p}) * double{parameters.temperature};
    while (likely < kept && row.gap(likely) >= least) {
      ++likely;
    }
    kept = row.with_ties(likely);
  }
  return kept;
}

/// The random bits of a row.
std::uint64_t random_bits(const sampling::Parameters& parameters, const sampling::State& state,
                          std::int64_t row) noexcept {
  if (parameters.row_seeds != nullptr) {
    return philox(parameters.row_seeds[row].seed, parameters.row_seeds[row].offset, 0);
  }
  return philox(state.seed, state.offset, static_cast<std::uint32_t>(row));
}

/// The place of the token that a number in [0, weight of `kept` tokens) picks.
std::size_t drawn_token(const Row& row, std::uint64_t target) noexcept {
  std::size_t drawn = 0;
  for (std::uint64_t sum = row.weights[0]; sum <= target;) {
    sum += row.weights[++drawn];
  }
  return drawn;
}

}  // namespace

void sample(const MutableVectorView& tokens, const MatrixView& logits,
            const sampling::Parameters& parameters, sampling::State& state,
            const MutableVectorView& log_probabilities) {
  const auto size = static_cast<std::size_t>(logits.columns);
  Row row{std::vector<float>(size), std::vector<std::int32_t>(size), {}};
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const RowParameters own = parameters_of(parameters, r);
    const double temperature = own.is_greedy() ? 1.0 : double{own.temperature};
    read_row(row, logits, r);
    row.weigh(temperature);
    std::size_t kept = size;
    std::size_t drawn = 0;
    if (!own.is_greedy()) {
      kept = kept_tokens(row, own);
      drawn =
          drawn_token(row, high_product(random_bits(parameters, state, r), row.weight_of(kept)));
    }
    tokens.data_as<std::int32_t>()[r] = row.order[drawn];
    if (log_probabilities.data != nullptr) {
      const double total = static_cast<double>(row.weight_of(kept)) / kWeightOne;
      log_probabilities.data_as<float>()[r] =
          static_cast<float>(row.gap(drawn) / temperature - std::log(total));
    }
    if (parameters.row_seeds != nullptr) {
      ++parameters.row_seeds[r].offset;
    }
  }
  if (logits.rows != 0 && parameters.row_seeds == nullptr) {
    ++state.offset;
  }
}

void top_log_probabilities(const MutableMatrixView& top_tokens,
                           const MutableMatrixView& top_log_probabilities, const MatrixView& logits,
                           const VectorView& temperature, const VectorView& tokens,
                           const MutableVectorView& token_log_probabilities) {
  const auto size = static_cast<std::size_t>(logits.columns);
  const auto count = static_cast<std::size_t>(top_tokens.columns);
  Row row{std::vector<float>(size), std::vector<std::int32_t>(size), {}};
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    read_row(row, logits, r);
    const float given = value_at(temperature, r, 1.0f);
    const double scale = given > 0.0f ? 1.0 / double{given} : 1.0;
    double weight = 0;
    for (std::size_t i = 0; i < size; ++i) {
      weight += std::exp(row.gap(i) * scale);
    }
    const auto log_probability = [&](std::int32_t token) {
      return static_cast<float>(row.gap_of(token) * scale - std::log(weight));
    };
    const std::size_t first = static_cast<std::size_t>(r) * count;
    for (std::size_t i = 0; i < count; ++i) {
      top_tokens.data_as<std::int32_t>()[first + i] = row.order[i];
      top_log_probabilities.data_as<float>()[first + i] = log_probability(row.order[i]);
    }
    if (token_log_probabilities.data != nullptr) {
      const std::int32_t token = tokens.data_as<const std::int32_t>()[r];
      const bool is_one = token >= 0 && token < logits.columns;
      token_log_probabilities.data_as<float>()[r] =
          is_one ? log_probability(token) : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace cukiln::reference
