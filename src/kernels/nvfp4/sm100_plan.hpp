// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/ceil_div.hpp"

#include <cukiln/nvfp4.hpp>
#include <cukiln/tensor_box.hpp>

namespace cukiln::nvfp4 {

/// A kernel of nvfp4_gemm.cu on sm_100a: its tile, and how it is launched. The numbers are those of
/// Sm100Tile in gemm_sm100_tile.cuh; the emulator's tests compare them.
struct Sm100Kernel {
  const char* name;
  std::uint32_t columns;  // of a tile; it has 128 rows for each CTA
  std::uint32_t ctas;     // that compute one tile together
  bool swapped;           // the tile's rows are B's, its columns A's
  std::uint32_t shared_bytes;
  /// Clocks in which a CTA loads a stage, by scripts/model-sm100: measured on an H200, not on
  /// sm_100a. They exceed those of the stage's MMAs and of their issue.
  std::uint32_t stage_clocks;
  std::uint32_t rows_shared = 1;  // tiles side by side, of a cluster that shares the loads of rows

  constexpr std::uint32_t cluster() const noexcept { return ctas * rows_shared; }
};

inline constexpr std::uint32_t kSm100BlockThreads = 192;
inline constexpr Sm100Kernel kSm100Kernels[] = {
    {"nvfp4_gemm_128x128", 128, 1, false, 218112, 1489},
    {"nvfp4_gemm_128x256", 256, 1, false, 199680, 1808},
    {"nvfp4_gemm_256x256", 256, 2, false, 228352, 1524},
    {"nvfp4_gemm_256x128", 128, 2, false, 205824, 1347},
    {"nvfp4_gemm_256x256_x2", 256, 2, false, 228352, 1365, 2},
    {"nvfp4_gemm_swapped", 64, 1, true, 205824, 1347},
    {"nvfp4_gemm_grouped_128x128", 128, 1, false, 218112, 1489},
    {"nvfp4_gemm_grouped_128x256", 256, 1, false, 199680, 1808},
};
inline constexpr std::size_t kSm100Swapped = 5;     ///< before it: A's rows are the tile's
inline constexpr std::size_t kSm100Grouped = 6;     ///< from here on
inline constexpr std::size_t kSm100PlainCount = 6;  ///< not grouped

/// One launch.
struct Sm100Plan {
  const Sm100Kernel* kernel;
  std::uint32_t grid;  // in CTAs
  TensorBox rows, columns, row_scales, column_scales, output;
};

/// How many clusters' worth of tiles there are: the last of a row of tiles may be half empty.
constexpr std::int64_t cluster_count(const Sm100Kernel& kernel, std::int64_t m,
                                     std::int64_t n) noexcept {
  const std::int64_t tile_rows = std::int64_t{128} * kernel.ctas;
  return kernels::ceil_div(kernel.swapped ? n : m, tile_rows) *
         kernels::ceil_div(kernel.swapped ? m : n,
                           std::int64_t{kernel.columns} * kernel.rows_shared);
}

/// How many clusters the device runs at the same time. Those of four do not fit on its last SMs, as
/// on an H200 (sm90_plan.hpp).
constexpr std::int64_t wave_clusters(const Sm100Kernel& kernel, std::int64_t num_sms) noexcept {
  const std::int64_t usable = kernel.cluster() >= 4 ? num_sms * 7 / 8 : num_sms;
  return std::max<std::int64_t>(usable / kernel.cluster(), 1);
}

/// Selects the kernel in [first, end) whose waves of tiles should take the least time.
inline const Sm100Kernel& fastest_sm100(std::size_t first, std::size_t end, std::int64_t m,
                                        std::int64_t n, std::int64_t num_sms) noexcept {
  const auto time = [&](const Sm100Kernel& kernel) {
    const std::int64_t in_wave = wave_clusters(kernel, num_sms);
    return kernels::ceil_div(cluster_count(kernel, m, n), in_wave) * kernel.stage_clocks;
  };
  return *std::min_element(
      kSm100Kernels + first, kSm100Kernels + end,
      [&](const Sm100Kernel& a, const Sm100Kernel& b) { return time(a) < time(b); });
}

/// Selects the kernel of a GEMM that is not grouped. Where A has at most 64 rows, they are the
/// columns of one tile.
inline const Sm100Kernel& select_sm100(std::int64_t m, std::int64_t n,
                                       std::int64_t num_sms) noexcept {
  return m <= kSm100Kernels[kSm100Swapped].columns
             ? kSm100Kernels[kSm100Swapped]
             : fastest_sm100(0, kSm100PlainCount, m, n, num_sms);
}

/// `n` is the number of D's columns: B's rows or, of a grouped GEMM, those of one expert.
inline Sm100Plan plan_sm100(const Sm100Kernel& kernel, const QuantizedMatrix& a,
                            const QuantizedMatrix& b, const void* d, std::int64_t n,
                            std::int64_t num_sms) noexcept {
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
  const auto scales_box = [&](const QuantizedMatrix& matrix, std::uint32_t rows,
                              std::uint32_t atoms) {
    return TensorBox{TensorBox::Element::u16,
                     false,
                     3,
                     matrix.scales,
                     {256, scale_atoms, (to_unsigned(matrix.rows) + 127) / 128},
                     {512, scale_atoms * 512},
                     {256, atoms, (rows + 127) / 128}};
  };
  const QuantizedMatrix& rows = kernel.swapped ? b : a;
  const QuantizedMatrix& columns = kernel.swapped ? a : b;
  const std::int64_t persistent_clusters =
      std::min(cluster_count(kernel, a.rows, n), wave_clusters(kernel, num_sms));
  Sm100Plan plan{};
  plan.kernel = &kernel;
  plan.grid = static_cast<std::uint32_t>(persistent_clusters) * kernel.cluster();
  plan.rows = data_box(rows, 128 / kernel.rows_shared);
  plan.columns = data_box(columns, kernel.columns / kernel.ctas);
  plan.row_scales = scales_box(rows, 128, 4 / kernel.rows_shared);
  plan.column_scales = scales_box(columns, kernel.columns, 4);
  plan.output = {TensorBox::Element::bf16,
                 !kernel.swapped,
                 2,
                 d,
                 {to_unsigned(n), to_unsigned(a.rows)},
                 {to_unsigned(n) * 2},
                 {kernel.swapped ? 32u : 64u, kernel.swapped ? 64u : 32u, 1}};
  return plan;
}

}  // namespace cukiln::nvfp4
