// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/checks.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {

inline constexpr std::uint32_t kQuantizeThreads = 512;

inline constexpr std::int64_t kMultiprocessors = 132;  ///< of an H200

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

/// How a kernel's pieces of work are dealt out: a thread block takes a run of them, one after the
/// other, of a length that was measured to be good.
struct Runs {
  std::int64_t resident;  ///< thread blocks that a multiprocessor holds
  std::int64_t shortest;
  std::int64_t longest;
};
inline constexpr Runs kQuantizeRuns = {4, 3, 4};
inline constexpr Runs kPairsRuns = {2, 4, 4};
inline constexpr Runs kSwigluRuns = {2, 8, 28};

/// The pieces of a thread block: few pieces are spread over all that are resident. Else blocks come
/// in turns of as many as are resident, and of the lengths the one that leaves least of the last
/// turn empty is best.
constexpr std::int64_t run_length(std::int64_t pieces, const Runs& runs) noexcept {
  const std::int64_t turn = kMultiprocessors * runs.resident;
  if (pieces <= runs.shortest * turn) {
    return std::max<std::int64_t>((pieces + turn - 1) / turn, 1);
  }
  const auto time = [&](std::int64_t run) {
    const std::int64_t blocks = (pieces + run - 1) / run;
    return (blocks + turn - 1) / turn * run;
  };
  std::int64_t best = runs.shortest;
  for (std::int64_t run = best + 1; run <= runs.longest; ++run) {
    if (time(run) < time(best)) {
      best = run;
    }
  }
  return best;
}

inline LaunchConfig run_config(std::int64_t pieces, const Runs& runs) noexcept {
  const std::int64_t run = run_length(pieces, runs);
  LaunchConfig config;
  config.grid.x = kernels::grid_of((pieces + run - 1) / run, INT32_MAX);
  config.block.x = kQuantizeThreads;
  config.programmatic_launch = true;  // the kernels wait for what they read
  return config;
}

/// [rows, columns] by rows.
inline LaunchConfig quantize_config(std::int64_t rows, std::int64_t columns) noexcept {
  return run_config(atom_count(rows, columns), kQuantizeRuns);
}

/// A gate and an up matrix that alternate, [rows, columns] each.
inline LaunchConfig pairs_config(std::int64_t rows, std::int64_t columns) noexcept {
  return run_config(atom_count(rows, columns), kPairsRuns);
}

/// Their SwiGLU, [rows, columns].
inline LaunchConfig swiglu_config(std::int64_t rows, std::int64_t columns) noexcept {
  return run_config(atom_count(rows, columns), kSwigluRuns);
}

}  // namespace cukiln::nvfp4
