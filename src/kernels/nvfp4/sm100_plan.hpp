// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cukiln/tensor_box.hpp>

namespace cukiln::nvfp4 {

/// A kernel of nvfp4_gemm.cu on sm_100a: the tile it makes, and how it is launched. The numbers are
/// Sm100Tile's in gemm_sm100_tile.cuh; the emulator's tests compare them.
struct Sm100Kernel {
  const char* name;
  std::uint32_t columns;  // of a tile; it has 128 rows for each CTA
  std::uint32_t ctas;     // that make one tile together
  bool swapped;           // rows are B's, columns A's
  std::uint32_t shared_bytes;
  /// How fast a CTA fills its part of a tile, against the best of these. An estimate from the bytes
  /// of shared memory that a product reads, not measured.
  double speed;
};

inline constexpr std::uint32_t kSm100BlockThreads = 192;
inline constexpr Sm100Kernel kSm100Kernels[] = {
    {"nvfp4_gemm_128x128", 128, 1, false, 218112, 0.8},
    {"nvfp4_gemm_128x256", 256, 1, false, 199680, 0.95},
    {"nvfp4_gemm_256x256", 256, 2, false, 228352, 1.0},
    {"nvfp4_gemm_swapped", 64, 1, true, 205824, 0.5},
    {"nvfp4_gemm_grouped_128x128", 128, 1, false, 218112, 0.8},
    {"nvfp4_gemm_grouped_128x256", 256, 1, false, 199680, 0.95},
};
inline constexpr std::size_t kSm100Plain = 3;    ///< the first ones: A's rows fill the lanes
inline constexpr std::size_t kSm100Grouped = 4;  ///< from here on
inline constexpr const Sm100Kernel& kSm100Swapped = kSm100Kernels[3];

/// One of the two matrices, [rows, k].
struct Sm100Operand {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t rows;
};

/// One launch.
struct Sm100Plan {
  const Sm100Kernel* kernel;
  std::uint32_t grid;  // CTAs
  TensorBox rows, columns, row_scales, column_scales, output;
};

constexpr std::int64_t tiles_of(const Sm100Kernel& kernel, std::int64_t m,
                                std::int64_t n) noexcept {
  const std::int64_t tile_rows = std::int64_t{128} * kernel.ctas;
  return ((kernel.swapped ? n : m) + tile_rows - 1) / tile_rows *
         (((kernel.swapped ? m : n) + kernel.columns - 1) / kernel.columns);
}

/// Of the kernels from `first` up to `end`, the one that should be done first: whole waves of tiles
/// over the multiprocessors, each as long as a CTA's part of a tile.
inline const Sm100Kernel& quickest_sm100(std::size_t first, std::size_t end, std::int64_t m,
                                         std::int64_t n, std::int64_t multiprocessors) noexcept {
  const auto time = [&](const Sm100Kernel& kernel) {
    const std::int64_t at_once = std::max<std::int64_t>(multiprocessors / kernel.ctas, 1);
    const std::int64_t waves = (tiles_of(kernel, m, n) + at_once - 1) / at_once;
    return static_cast<double>(waves * kernel.columns) / kernel.speed;
  };
  const Sm100Kernel* best = &kSm100Kernels[first];
  for (std::size_t i = first + 1; i < end; ++i) {
    if (time(kSm100Kernels[i]) < time(*best)) {
      best = &kSm100Kernels[i];
    }
  }
  return *best;
}

/// Up to 64 rows of A fit one tile's columns; then B's rows fill the lanes.
inline const Sm100Kernel& sm100_kernel_for(std::int64_t m, std::int64_t n,
                                           std::int64_t multiprocessors) noexcept {
  return m <= kSm100Swapped.columns ? kSm100Swapped
                                    : quickest_sm100(0, kSm100Plain, m, n, multiprocessors);
}

/// `n` is the number of D's columns: B's rows, or, of a grouped product, one expert's.
inline Sm100Plan plan_sm100(const Sm100Kernel& kernel, const Sm100Operand& a, const Sm100Operand& b,
                            const std::uint16_t* d, std::int64_t n, std::int64_t k,
                            std::int64_t multiprocessors) noexcept {
  const auto unsigned_of = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t code_bytes = unsigned_of(k) / 2;
  const std::uint64_t scale_atoms = (unsigned_of(k) + 63) / 64;
  const auto codes = [&](const Sm100Operand& matrix, std::uint32_t rows) {
    return TensorBox{TensorBox::Element::u8,
                     true,
                     2,
                     matrix.codes,
                     {code_bytes, unsigned_of(matrix.rows)},
                     {code_bytes},
                     {128, rows, 1}};
  };
  // An atom of 512 bytes is 256 elements, because a box has at most 256 in a dimension.
  const auto scales = [&](const Sm100Operand& matrix, std::uint32_t rows) {
    return TensorBox{TensorBox::Element::u16,
                     false,
                     3,
                     matrix.scales,
                     {256, scale_atoms, (unsigned_of(matrix.rows) + 127) / 128},
                     {512, scale_atoms * 512},
                     {256, 4, (rows + 127) / 128}};
  };
  const Sm100Operand& rows = kernel.swapped ? b : a;
  const Sm100Operand& columns = kernel.swapped ? a : b;
  const std::int64_t tiles = tiles_of(kernel, a.rows, n);
  const std::int64_t at_once = std::max<std::int64_t>(multiprocessors / kernel.ctas, 1);
  Sm100Plan plan{};
  plan.kernel = &kernel;
  plan.grid = static_cast<std::uint32_t>(std::min(tiles, at_once)) * kernel.ctas;
  plan.rows = codes(rows, 128);
  plan.columns = codes(columns, kernel.columns / kernel.ctas);
  plan.row_scales = scales(rows, 128);
  plan.column_scales = scales(columns, kernel.columns);
  plan.output = {TensorBox::Element::bf16,
                 !kernel.swapped,
                 2,
                 d,
                 {unsigned_of(n), unsigned_of(a.rows)},
                 {unsigned_of(n) * 2},
                 {kernel.swapped ? 32u : 64u, kernel.swapped ? 64u : 32u, 1}};
  return plan;
}

}  // namespace cukiln::nvfp4
