// SPDX-License-Identifier: Apache-2.0
#include "reference/sample.hpp"

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

  double gap(std::size_t place) const noexcept {
    const double best = logits[static_cast<std::size_t>(order.front())];
    const double own = logits[static_cast<std::size_t>(order[place])];
    return own == best ? 0.0 : own - best;  // also of equal infinities
  }

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

}  // namespace

void sample(std::int32_t* tokens, const float* logits, std::int64_t rows, std::int64_t vocabulary,
            std::int64_t row_stride, const sampling::Parameters& parameters, sampling::State& state,
            float* log_probabilities) {
  const auto size = static_cast<std::size_t>(vocabulary);
  Row row{std::vector<float>(size), std::vector<std::int32_t>(size), {}};
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < size; ++i) {
      const float logit = logits[r * row_stride + static_cast<std::int64_t>(i)];
      row.logits[i] = logit == logit ? logit : -std::numeric_limits<float>::infinity();
      row.order[i] = static_cast<std::int32_t>(i);
    }
    std::stable_sort(row.order.begin(), row.order.end(), [&](std::int32_t a, std::int32_t b) {
      return row.logits[static_cast<std::size_t>(a)] > row.logits[static_cast<std::size_t>(b)];
    });
    const float temperature = parameters.temperature != nullptr ? parameters.temperature[r] : 1.0f;
    const bool greedy = !(temperature > 0.0f);
    row.weigh(greedy ? 1.0 : double{temperature});

    std::size_t kept = size;
    std::size_t drawn = 0;
    if (!greedy) {
      const std::int32_t top_k = parameters.top_k != nullptr ? parameters.top_k[r] : 0;
      const float top_p = parameters.top_p != nullptr ? parameters.top_p[r] : 1.0f;
      const float min_p = parameters.min_p != nullptr ? parameters.min_p[r] : 0.0f;
      const bool by_top_k = top_k > 0 && top_k < vocabulary;
      if (by_top_k) {
        kept = row.with_ties(static_cast<std::size_t>(top_k));
      }
      if (top_p < 1.0f) {
        const bool of_row = !by_top_k || parameters.order == sampling::FilterOrder::joint;
        const std::uint64_t base = row.weight_of(of_row ? size : kept);
        const auto share = static_cast<std::uint64_t>(
            std::max(0.0f, top_p) * 0x1p64f);  // top_p is below 1, so this is below 2^64
        const std::uint64_t limit = std::max<std::uint64_t>(high_product(share, base), 1);
        std::size_t nucleus = 0;
        for (std::uint64_t above = 0; nucleus < kept && above < limit; ++nucleus) {
          above += row.weights[nucleus];
        }
        kept = std::min(kept, row.with_ties(nucleus));
      }
      if (min_p > 0.0f) {
        std::size_t likely = 1;
        const double least = std::log(double{min_p}) * double{temperature};
        while (likely < kept && row.gap(likely) >= least) {
          ++likely;
        }
        kept = row.with_ties(likely);
      }
      const std::uint64_t target = high_product(
          philox(state.seed, state.offset, static_cast<std::uint32_t>(r)), row.weight_of(kept));
      for (std::uint64_t sum = row.weights[0]; sum <= target;) {
        sum += row.weights[++drawn];
      }
    }
    tokens[r] = row.order[drawn];
    if (log_probabilities != nullptr) {
      const double total = static_cast<double>(row.weight_of(kept)) / kWeightOne;
      log_probabilities[r] = static_cast<float>(
          row.gap(drawn) / (greedy ? 1.0 : double{temperature}) - std::log(total));
    }
  }
  if (rows != 0) {
    ++state.offset;
  }
}

}  // namespace cukiln::reference
