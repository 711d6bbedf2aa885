// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/checks.hpp"
#include "kernels/nvfp4/sm90_plan.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/nvfp4.hpp>
#include <cukiln/tensor_box.hpp>

/// What the launchers of W4A4 and of W4A16 kernels on sm_90 share.
namespace cukiln::nvfp4::sm90 {

inline constexpr std::uint32_t kPrefillThreads = 384;

// Dynamic shared memory that limits the occupancy of an sm_90 SM to one thread block, or to two.
inline constexpr std::uint32_t kOccupancy1Bytes = 117 * 1024;
inline constexpr std::uint32_t kOccupancy2Bytes = 77 * 1024;

/// One producer warp, or a warpgroup: gemm_sm90_decode.cuh.
constexpr std::uint32_t block_threads(const DecodeTile& tile) noexcept {
  return tile.tokens > 16 ? 384 : 288;
}

/// Where each SM has at most one, or two, thread blocks to run, no SM gets more: a kernel that
/// starts early would find room for another one on SMs that the preceding kernel has left, and
/// those SMs would end last.
inline std::uint32_t evenly_spread_bytes(const DecodeTile& tile, std::uint64_t blocks,
                                         const Shape& shape) noexcept {
  return std::max(tile.shared_bytes, blocks <= shape.num_sms       ? kOccupancy1Bytes
                                     : blocks <= 2 * shape.num_sms ? kOccupancy2Bytes
                                                                   : 0);
}

/// Decode kernels have a thread block in y for each tile of tokens.
inline Result<void> check_token_blocks(const DecodeTile& tile, std::uint64_t m,
                                       std::uint64_t k) noexcept {
  constexpr std::uint64_t kMaxGridY = 65535;
  if (ceil_div(m, tile.tokens) > kMaxGridY) {
    return kernels::refuse(
        "a is [{}, {}]; at most {} rows are expected on this device, which has no kernels for many "
        "tokens: launch parts of the rows one by one",
        m, k, kMaxGridY * tile.tokens);
  }
  return {};
}

/// `box_rows` rows by `box_bytes` bytes of packed data, two columns each.
inline TensorBox data_box(const QuantizedMatrix& matrix, std::uint32_t box_rows,
                          std::uint32_t box_bytes) noexcept {
  TensorBox box;
  box.data = matrix.data;
  box.size[0] = static_cast<std::uint64_t>(matrix.columns) / 2;
  box.size[1] = static_cast<std::uint64_t>(matrix.rows);
  box.stride[0] = box.size[0];
  box.box[0] = box_bytes;
  box.box[1] = box_rows;
  return box;
}

inline std::uint64_t whole_groups(std::uint64_t k) noexcept {
  return ceil_div(k, kGroupK) * kGroupK;
}

/// Tokens in the lanes' order of K, m by whole_groups(k).
inline TensorBox token_box(TensorBox::Element element, const void* tokens, const PrefillTile& tile,
                           const Shape& shape) noexcept {
  TensorBox box;
  box.element = element;
  box.swizzled = true;
  box.data = tokens;
  box.size[0] = whole_groups(shape.k);
  box.size[1] = shape.m;
  box.stride[0] = box.size[0] * 2;
  box.box[0] = 64;
  box.box[1] = tile.tokens;
  return box;
}

inline LaunchConfig prefill_config(const PrefillTile& tile, std::uint32_t splits,
                                   const Shape& shape) noexcept {
  const std::uint64_t tiles = tile_count(tile, shape);
  LaunchConfig config;
  config.block.x = kPrefillThreads;
  config.shared_bytes = tile.shared_bytes;
  config.programmatic_launch = true;  // the kernel waits for the tokens itself
  if (splits == 1) {                  // persistent: a thread block computes several tiles
    config.grid.x = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(tiles, std::uint64_t{shape.num_sms} * tile.blocks_per_sm));
  } else {
    config.grid.x = static_cast<std::uint32_t>(tiles * splits);
    config.cluster = {splits, 1, 1};
  }
  return config;
}

}  // namespace cukiln::nvfp4::sm90
