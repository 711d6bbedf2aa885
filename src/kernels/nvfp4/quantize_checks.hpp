#pragma once

#include <algorithm>

#include "kernels/checks.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {

inline constexpr std::uint32_t kQuantizeThreads = 512;

/// Multiprocessors of an H200, and the quantisers' thread blocks that one holds.
inline constexpr std::int64_t kMultiprocessors = 132;
inline constexpr std::int64_t kQuantizeResident = 4;

inline std::int64_t atom_count(std::int64_t rows, std::int64_t columns) noexcept {
  return (rows + 127) / 128 * ((columns + 63) / 64);
}

/// Rows are read by vectors of 16 bytes.
inline Result<void> check_row_stride(std::int64_t row_stride) noexcept {
  if (row_stride % 8 != 0) {
    return kernels::refuse(
        "row_stride is {} elements; a multiple of 8 is expected, so that rows lie on 16 bytes",
        row_stride);
  }
  return {};
}

/// What every quantiser asks of its arguments. `input_columns` is the width of the input's rows,
/// `columns` that of what is quantised.
inline Result<void> check_quantize(const std::uint8_t* codes, const std::uint8_t* scales,
                                   const std::uint16_t* input, std::int64_t rows,
                                   std::int64_t input_columns, std::int64_t columns,
                                   std::int64_t row_stride) noexcept {
  CUKILN_CHECK(kernels::check_shape(rows, input_columns));
  CUKILN_CHECK(kernels::check_pointer("codes", codes, 8));
  CUKILN_CHECK(kernels::check_pointer("scales", scales, 1));
  CUKILN_CHECK(kernels::check_pointer("input", input, 16));
  CUKILN_CHECK(check_row_stride(row_stride));
  if (atom_count(rows, columns) > INT32_MAX) {
    return kernels::refuse("[{}, {}] has {} scale atoms; fewer than 2147483648 are expected", rows,
                           columns, atom_count(rows, columns));
  }
  return {};
}

/// `columns` as the caller named them: blocks of 16.
inline Result<void> check_columns(std::int64_t columns) noexcept {
  if (columns % 16 != 0) {
    return kernels::refuse("columns is {}; a multiple of 16 is expected, one block scale each",
                           columns);
  }
  return {};
}

inline Result<void> check_swiglu(const SwiGlu& activation) noexcept {
  if (!(activation.limit > 0)) {
    return kernels::refuse("limit is {}; a positive number is expected, infinity for no limit",
                           activation.limit);
  }
  return {};
}

/// The atoms that a thread block takes one after the other: of a small matrix one; of a large one
/// four to eight, so that the last blocks end together. Blocks come in turns of as many as are
/// resident, and of these numbers the one that leaves least of the last turn empty is best.
constexpr std::int64_t quantize_run(std::int64_t atoms) noexcept {
  constexpr std::int64_t kWave = kMultiprocessors * kQuantizeResident;
  if (atoms <= 4 * kWave) {
    return (atoms + kWave - 1) / kWave;
  }
  const auto time = [&](std::int64_t run) {
    const std::int64_t blocks = (atoms + run - 1) / run;
    return (blocks + kWave - 1) / kWave * run;
  };
  std::int64_t best = 4;
  for (std::int64_t run = 5; run <= 8; ++run) {
    if (time(run) < time(best)) {
      best = run;
    }
  }
  return best;
}

inline LaunchConfig quantize_config(std::int64_t rows, std::int64_t columns) noexcept {
  const std::int64_t atoms = atom_count(rows, columns);
  const std::int64_t run = std::max<std::int64_t>(quantize_run(atoms), 1);
  LaunchConfig config;
  config.grid.x = kernels::grid_of((atoms + run - 1) / run, INT32_MAX);
  config.block.x = kQuantizeThreads;
  return config;
}

/// The kernel of gate and up needs registers for two thread blocks on a multiprocessor, and gained
/// nothing from more.
inline LaunchConfig deinterleave_config(std::int64_t rows, std::int64_t columns) noexcept {
  LaunchConfig config;
  config.grid.x = kernels::grid_of(atom_count(rows, columns), 2 * kMultiprocessors);
  config.block.x = kQuantizeThreads;
  return config;
}

}  // namespace cukiln::nvfp4
