#pragma once

#include "kernels/checks.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {

inline constexpr std::uint32_t kQuantizeThreads = 512;

/// The grid's limit: twelve thread blocks for each of an H200's 132 multiprocessors, where longer
/// runs of one block gained nothing.
inline constexpr std::int64_t kQuantizeMaxBlocks = 1584;

inline std::int64_t atom_count(std::int64_t rows, std::int64_t columns) noexcept {
  return (rows + 127) / 128 * ((columns + 63) / 64);
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
  if (row_stride % 8 != 0) {
    return kernels::refuse(
        "row_stride is {} elements; a multiple of 8 is expected, so that rows lie on 16 bytes",
        row_stride);
  }
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

inline LaunchConfig quantize_config(std::int64_t rows, std::int64_t columns) noexcept {
  LaunchConfig config;
  config.grid.x = kernels::grid_of(atom_count(rows, columns), kQuantizeMaxBlocks);
  config.block.x = kQuantizeThreads;
  return config;
}

}  // namespace cukiln::nvfp4
