// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cukiln::nvfp4 {

/// One way to compute a GEMM: a kernel, as an index into the architecture's kernels, and into how
/// many parts K is split, each for a thread block of a cluster.
struct GemmTactic {
  std::uint32_t kernel = 0;
  std::uint32_t splits = 1;

  constexpr bool operator==(const GemmTactic& other) const noexcept {
    return kernel == other.kernel && splits == other.splits;
  }
};

/// The tactics of a shape, in the order in which `GemmOptions::tactic` counts them.
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

/// A row as scripts/tune writes it: it names the kernel, without the family's prefix.
struct MeasuredRow {
  std::uint32_t n, k, m;
  std::string_view kernel;
  std::uint32_t splits;
};

/// `decode_8x2` of `nvfp4_gemm_decode_8x2`.
constexpr std::string_view short_name(std::string_view kernel) noexcept {
  constexpr std::string_view kFamilyEnd = "_gemm_";
  return kernel.substr(kernel.find(kFamilyEnd) + kFamilyEnd.size());
}

/// Finds the kernels that rows name; `name_of(i)` is the name of kernel `i`. Rows with another name
/// do not compile.
template <std::size_t row_count, class NameOf>
constexpr std::array<TunedGemm, row_count> find_kernels(
    const std::array<MeasuredRow, row_count>& rows, NameOf name_of) noexcept {
  std::array<TunedGemm, row_count> tuned{};
  for (std::size_t i = 0; i < row_count; ++i) {
    const MeasuredRow& row = rows[i];
    std::uint32_t kernel = 0;
    while (short_name(name_of(kernel)) != row.kernel) {
      ++kernel;
    }
    tuned[i] = {row.n, row.k, row.m, {kernel, row.splits}};
  }
  return tuned;
}

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
