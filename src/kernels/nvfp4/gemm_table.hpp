// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cukiln::nvfp4 {

/// One way to compute a GEMM: a tile, as an index into the architecture's list, and into how many
/// parts K is split, each for a thread block of a cluster.
struct GemmTactic {
  std::uint32_t tile = 0;
  std::uint32_t splits = 1;

  constexpr bool operator==(const GemmTactic& other) const noexcept {
    return tile == other.tile && splits == other.splits;
  }
};

/// The tactics of a shape, in the order in which `GemmOptions::tactic` counts them. `tile`: an
/// index into the architecture's kernels.
struct GemmTactics {
  static constexpr std::size_t kMax = 96;
  GemmTactic all[kMax];
  std::size_t count = 0;

  void add(const GemmTactic& tactic) noexcept { all[count++] = tactic; }
  const GemmTactic* begin() const noexcept { return all; }
  const GemmTactic* end() const noexcept { return all + count; }
};

/// The fastest tactic for this n and k, and for numbers of tokens above the previous row's, up to
/// m.
struct TunedGemm {
  std::uint32_t n, k, m;
  GemmTactic tactic;
};

/// What scripts/tune measured on a card of `num_sms` SMs, in ascending order of n, k, m.
struct GemmTable {
  const TunedGemm* rows;
  std::size_t count;
  std::uint32_t num_sms;

  const TunedGemm* begin() const noexcept { return rows; }
  const TunedGemm* end() const noexcept { return rows + count; }

  /// Returns null for a shape, or a card, that was not measured.
  const GemmTactic* find(std::uint64_t m, std::uint64_t n, std::uint64_t k,
                         std::uint32_t device_num_sms) const noexcept {
    if (device_num_sms != num_sms) {
      return nullptr;
    }
    const auto before = [&](const TunedGemm& row, std::uint64_t tokens) {
      return row.n != n ? row.n < n : row.k != k ? row.k < k : row.m < tokens;
    };
    const TunedGemm* const found = std::lower_bound(begin(), end(), m, before);
    return found != end() && found->n == n && found->k == k ? &found->tactic : nullptr;
  }
};

}  // namespace cukiln::nvfp4
