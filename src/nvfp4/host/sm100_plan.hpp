// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/gemm_table.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/tensor_box.hpp>

namespace cukiln::nvfp4 {

/// A kernel of nvfp4_gemm.cu on sm_100a: its tile, and how it is launched. The numbers are those of
/// Sm100Tile in gemm_sm100_tile.cuh; the emulator's tests compare them.
struct Sm100Kernel {
  const char* module;
  const char* name;
  std::uint32_t columns;  // of a tile
  std::uint32_t ctas;     // that compute one tile together
  bool swapped;           // the tile's rows are B's, its columns A's
  std::uint32_t shared_bytes;
  std::uint32_t max_splits = 1;   // of K, each for a CTA of a cluster
  std::uint32_t rows_shared = 1;  // tiles side by side, of a cluster that shares the loads of rows
  std::uint32_t rows = 128;       // of a tile, for each CTA; fewer than an MMA has if less than 128
  std::uint32_t columns_shared = 1;  // tiles one above the other, likewise

  constexpr std::uint32_t cluster() const noexcept { return ctas * rows_shared * columns_shared; }
};

inline constexpr std::uint32_t kSm100BlockThreads = 192;
inline constexpr Sm100Kernel kSm100Kernels[] = {
    {"nvfp4_gemm", "nvfp4_gemm_128x128", 128, 1, false, 218112},
    {"nvfp4_gemm", "nvfp4_gemm_128x256", 256, 1, false, 199680},
    {"nvfp4_gemm", "nvfp4_gemm_256x256", 256, 2, false, 228352},
    {"nvfp4_gemm", "nvfp4_gemm_256x128", 128, 2, false, 205824},
    {"nvfp4_gemm", "nvfp4_gemm_256x256_x2", 256, 2, false, 228352, 1, 2},
    {"nvfp4_gemm", "nvfp4_gemm_256x192_x2", 192, 2, false, 207872, 1, 2},
    {"nvfp4_gemm", "nvfp4_gemm_256x128_x2", 128, 2, false, 205824, 1, 2},
    {"nvfp4_gemm", "nvfp4_gemm_256x256_x4", 256, 2, false, 228352, 1, 2, 128, 2},
    {"nvfp4_gemm", "nvfp4_gemm_256x192_x4", 192, 2, false, 207872, 1, 2, 128, 2},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_16", 16, 1, true, 230400, 8},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_32", 32, 1, true, 230400, 8},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_64", 64, 1, true, 218112, 8},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_128", 128, 1, true, 218112, 8},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_256", 256, 1, true, 199680, 8},
    {"nvfp4_gemm_16", "nvfp4_gemm_swapped_64_half", 64, 1, true, 222208, 8, 1, 64},
    {"nvfp4_gemm", "nvfp4_gemm_grouped_128x128", 128, 1, false, 218112},
    {"nvfp4_gemm", "nvfp4_gemm_grouped_128x256", 256, 1, false, 199680},
};
/// Into how many parts K may be split, at most a kernel's max_splits.
inline constexpr std::uint32_t kSm100Splits[] = {1, 2, 3, 4, 6, 8};
inline constexpr std::size_t kSm100Grouped = 15;  ///< from here on
inline constexpr std::size_t kSm100PlainCount = kSm100Grouped;

inline constexpr std::int64_t kSm100StageK = 256;  ///< of K, in a stage

/// A GEMM on a device with `num_sms` SMs. `experts`: of a grouped GEMM, whose m is that of all of
/// them together.
struct Sm100Shape {
  std::int64_t m, n, k;
  std::int64_t num_sms;
  std::int64_t experts = 1;
};

/// One launch.
struct Sm100Plan {
  const Sm100Kernel* kernel;
  std::uint32_t grid;    // in CTAs
  std::uint32_t splits;  // of K; more than 1: CTAs of a cluster that share one tile
  TensorBox rows, columns, row_scales, column_scales;
  TensorBox output;  // with swapped operands D, stored without a map
};

/// How many clusters' worth of tiles there are: the last of a row or column may be half empty.
constexpr std::int64_t cluster_count(const Sm100Kernel& kernel, std::int64_t m,
                                     std::int64_t n) noexcept {
  const std::int64_t tile_rows = std::int64_t{kernel.rows} * kernel.ctas * kernel.columns_shared;
  return kernels::ceil_div(kernel.swapped ? n : m, tile_rows) *
         kernels::ceil_div(kernel.swapped ? m : n,
                           std::int64_t{kernel.columns} * kernel.rows_shared);
}

static_assert([] {
  for (const Sm100Kernel& kernel : kSm100Kernels) {
    if (kernel.max_splits < 1 || kernel.max_splits > kSm100Splits[std::size(kSm100Splits) - 1]) {
      return false;
    }
  }
  return true;
}());

/// How many clusters the device runs at the same time, at least one, if each splits K among
/// `splits` times the CTAs of a tile. The CTAs of a cluster share a GPC, and take an SM each. That
/// a GPC has 18 SMs is assumed; those of a B200 are said to have 18 or 20. A pair of SMs is never
/// torn apart.
constexpr std::int64_t wave_clusters(const Sm100Kernel& kernel, std::int64_t splits,
                                     std::int64_t num_sms) noexcept {
  constexpr std::int64_t kGpcSms = 18;
  const std::int64_t ctas = kernel.cluster() * splits;
  const std::int64_t clusters =
      ctas == kernel.ctas ? num_sms / ctas : num_sms / kGpcSms * (kGpcSms / ctas);
  return std::max<std::int64_t>(clusters, 1);
}

/// Whether a tactic can compute a GEMM. Block scales are loaded by 128 rows: a tile of 64 columns
/// may begin in the middle of them, a narrower one may not, so there must be only one. K is split
/// only where all clusters run in one wave, and each CTA has a stage of K.
constexpr bool applies(const GemmTactic& tactic, const Sm100Shape& shape) noexcept {
  const Sm100Kernel& kernel = kSm100Kernels[tactic.kernel];
  const std::uint32_t splits = tactic.splits;
  if (kernel.columns < 64 && shape.m > kernel.columns) {
    return false;
  }
  return splits == 1 ||
         (splits <= kernel.max_splits && splits <= kernels::ceil_div(shape.k, kSm100StageK) &&
          cluster_count(kernel, shape.m, shape.n) <= wave_clusters(kernel, splits, shape.num_sms));
}

/// `n` is the number of D's columns: B's rows or, of a grouped GEMM, those of one expert.
/// `splits` is 1, or one of kSm100Splits up to the kernel's max_splits.
inline Sm100Plan plan_sm100(const Sm100Kernel& kernel, const QuantizedMatrix& a,
                            const QuantizedMatrix& b, const void* d, std::int64_t n,
                            std::int64_t num_sms, std::uint32_t splits = 1) noexcept {
  const auto to_unsigned = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t row_bytes = to_unsigned(a.columns) / 2;
  const std::uint64_t scale_atoms = (to_unsigned(a.columns) + 63) / 64;
  const auto data_box = [&](const QuantizedMatrix& matrix, std::uint32_t rows) {
    return TensorBox{TensorBox::Element::u8,
                     true,
                     2,
                     matrix.data,
                     {row_bytes, to_unsigned(matrix.rows)},
                     {row_bytes},
                     {128, rows, 1}};
  };
  // An atom of 512 bytes is 256 elements, because a box has at most 256 in a dimension.
  const auto scales_box = [&](const QuantizedMatrix& matrix, std::uint32_t row_atoms,
                              std::uint32_t atoms) {
    return TensorBox{TensorBox::Element::u16,
                     false,
                     3,
                     matrix.scales,
                     {256, scale_atoms, (to_unsigned(matrix.rows) + 127) / 128},
                     {512, scale_atoms * 512},
                     {256, atoms, row_atoms}};
  };
  const QuantizedMatrix& rows = kernel.swapped ? b : a;
  const QuantizedMatrix& columns = kernel.swapped ? a : b;
  const std::int64_t clusters = cluster_count(kernel, a.rows, n);
  const std::int64_t persistent_clusters =
      splits > 1 ? clusters : std::min(clusters, wave_clusters(kernel, 1, num_sms));
  Sm100Plan plan{};
  plan.kernel = &kernel;
  plan.grid = static_cast<std::uint32_t>(persistent_clusters) * kernel.cluster() * splits;
  plan.splits = splits;
  plan.rows = data_box(rows, kernel.rows / kernel.rows_shared);
  plan.columns = data_box(columns, kernel.columns / kernel.ctas / kernel.columns_shared);
  plan.row_scales = scales_box(rows, 1, 4 / kernel.rows_shared);
  const std::uint32_t column_atoms = (kernel.columns + 127) / 128;
  // Each CTA of a pair loads a part: one atom of rows, of all steps of K or fewer.
  plan.column_scales =
      kernel.ctas == 1
          ? scales_box(columns, column_atoms, 4)
          : scales_box(columns, 1, 4 * column_atoms / (kernel.ctas * kernel.columns_shared));
  plan.output = {TensorBox::Element::bf16, true,       2, d, {to_unsigned(n), to_unsigned(a.rows)},
                 {to_unsigned(n) * 2},     {64, 32, 1}};
  return plan;
}

}  // namespace cukiln::nvfp4
