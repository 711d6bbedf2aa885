// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include "base/result.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm90_launch.hpp"

#include <cukiln/tensor_map.hpp>

#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after TensorMap

namespace cukiln::nvfp4::detail {
namespace {

using namespace sm90;

using Decode = kernels::KernelSignature<signatures::Nvfp4GemmDecode>;
using Expand = kernels::KernelSignature<signatures::Nvfp4GemmExpand>;
using Prefill = kernels::KernelSignature<signatures::Nvfp4GemmPrefill>;

constexpr std::uint32_t kExpandThreads = 256;
constexpr const char* kPrefillModule = "nvfp4_gemm_prefill";

constexpr const char* module_of(const DecodeTile& tile) noexcept {
  return tile.tokens == 8 ? "nvfp4_gemm" : tile.tokens == 16 ? "nvfp4_gemm_16" : "nvfp4_gemm_32";
}

constexpr GemmKernel decode_kernel(const DecodeTile& tile, std::uint32_t shared_bytes) noexcept {
  return {module_of(tile), tile.name, shared_bytes, Decode::check};
}

// Decode kernels, then prefill kernels, then the one that expands.
constexpr std::size_t kFirstPrefill = std::size(kDecodeTiles);
constexpr std::size_t kExpandIndex = kFirstPrefill + std::size(kPrefillTiles);
constexpr auto kKernels = [] {
  std::array<GemmKernel, kKernelCount> all{};
  for (std::size_t i = 0; i < kFirstPrefill; ++i) {
    all[i] =
        decode_kernel(kDecodeTiles[i], std::max(kDecodeTiles[i].shared_bytes, kOccupancy1Bytes));
  }
  for (std::size_t i = 0; i < std::size(kPrefillTiles); ++i) {
    all[kFirstPrefill + i] = {kPrefillModule, kPrefillTiles[i].name, kPrefillTiles[i].shared_bytes,
                              Prefill::check};
  }
  all[kExpandIndex] = {kPrefillModule, "nvfp4_gemm_expand", 0, Expand::check};
  return all;
}();

// The first three tiles for 8 tokens and for 16 run on every device.
constexpr std::uint32_t kAnyTiles = 3;
constexpr std::uint64_t kMaxAnyTokens = 16;
constexpr const DecodeTile& any_tile(std::size_t index) noexcept {
  return kDecodeTiles[decode_tiles(index < kAnyTiles ? 8 : kMaxAnyTokens).first +
                      index % kAnyTiles];
}

constexpr auto kAnyKernels = [] {
  std::array<GemmKernel, 2 * kAnyTiles> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DecodeTile& tile = any_tile(i);
    all[i] = decode_kernel(tile, tile.shared_bytes);
  }
  return all;
}();

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t workspace_bytes(std::int64_t m, std::int64_t, std::int64_t k) {
  const auto tokens = static_cast<std::uint64_t>(m);
  return tokens <= kMaxDecodeTokens ? 0 : tokens * whole_groups(static_cast<std::uint64_t>(k)) * 2;
}

Shape shape_of(const GemmCall& call, std::uint32_t num_sms) noexcept {
  return {call.m, call.n, call.k, num_sms};
}

// The index of a tactic's kernel. Tactics of a plan count tiles from the first that fits the shape.
GemmTactic with_kernel_index(const Shape& shape, const GemmTactic& tactic) noexcept {
  const std::size_t first = shape.is_decode() ? decode_tiles(shape.m).first : kFirstPrefill;
  return {static_cast<std::uint32_t>(first + tactic.tile), tactic.splits};
}

GemmTactics sm90_tactics(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                         std::uint32_t num_sms) noexcept {
  const Shape shape = {m, n, k, num_sms};
  const Tactics planned = tactics_of(shape);
  GemmTactics found;
  static_assert(sizeof planned.all <= sizeof found.all);
  for (std::size_t i = 0; i < planned.count; ++i) {
    found.add(with_kernel_index(shape, planned.all[i]));
  }
  return found;
}

GemmTactic select_sm90(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                       std::uint32_t num_sms) noexcept {
  const Shape shape = {m, n, k, num_sms};
  return with_kernel_index(shape, select_tactic(shape));
}

Result<void> launch_decode(const Kernel& kernel, const GemmCall& call, const DecodeTile& tile,
                           std::uint32_t shared_bytes) noexcept {
  constexpr std::uint32_t kBoxBytes = 128;
  TensorBox weights = data_box(call.b, tile.rows, kBoxBytes);
  weights.swizzled = true;
  CUKILN_TRY(const TensorMap weight_map, tensor_map(kernel, weights));
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(ceil_div(call.n, tile.rows));
  config.grid.y = static_cast<std::uint32_t>(ceil_div(call.m, tile.tokens));
  config.block.x = block_threads(tile);
  config.shared_bytes = shared_bytes;
  config.programmatic_launch = true;  // the kernel itself waits for what it reads
  return Decode::launch(kernel, call.stream, config, call.output, call.a.data, weight_map,
                        call.a.scales, call.b.scales, &call.a.global_scale->encode,
                        &call.b.global_scale->encode, call.bias, call.m, call.n, call.k,
                        std::uint32_t{call.constant_b});
}

// Decodes A to fp16 [m, columns], in the workspace.
Result<void> launch_expand(const Kernel& kernel, const GemmCall& call, std::uint64_t columns,
                           std::uint32_t num_sms) noexcept {
  constexpr std::uint64_t kBlocksPerSm = 16;  // in total, not at the same time
  LaunchConfig config;
  config.block.x = kExpandThreads;
  config.grid.x = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      ceil_div(call.m * (columns / 8), kExpandThreads), num_sms * kBlocksPerSm));
  return Expand::launch(kernel, call.stream, config, static_cast<std::uint32_t*>(call.workspace),
                        call.a.data, call.a.scales, call.m, call.k);
}

Result<void> launch_prefill(const Kernel* kernels, const GemmCall& call, const Shape& shape,
                            const GemmTactic& tactic) noexcept {
  CUKILN_CHECK(launch_expand(kernels[kExpandIndex], call, whole_groups(call.k), shape.num_sms));

  const PrefillTile& tile = kPrefillTiles[tactic.tile];
  const Kernel& kernel = kernels[kFirstPrefill + tactic.tile];
  CUKILN_TRY(const TensorMap token_map,
             tensor_map(kernel, token_box(TensorBox::Element::f16, call.workspace, tile, shape)));
  CUKILN_TRY(const TensorMap weight_map,
             tensor_map(kernel, data_box(call.b, tile.rows, kGroupK / 2)));
  const LaunchConfig config = prefill_config(tile, tactic.splits, shape);
  return Prefill::launch(kernel, call.stream, config, call.output, token_map, weight_map,
                         call.b.scales, &call.a.global_scale->encode, &call.b.global_scale->encode,
                         call.bias, call.m, call.n, call.k);
}

Result<void> launch(const Kernel* kernels, std::uint32_t num_sms, const GemmCall& call) noexcept {
  const Shape shape = shape_of(call, num_sms);
  if (!shape.is_decode()) {
    const auto first = static_cast<std::uint32_t>(kFirstPrefill);
    return launch_prefill(kernels, call, shape, {call.tactic.tile - first, call.tactic.splits});
  }
  const std::size_t index = call.tactic.tile;
  const DecodeTile& tile = kDecodeTiles[index];
  return launch_decode(kernels[index], call, tile,
                       evenly_spread_bytes(tile, block_count(tile, shape), shape));
}

// The first of the tiles for these tokens among kAnyKernels.
constexpr std::uint32_t first_any(std::uint32_t m) noexcept { return m <= 8 ? 0 : kAnyTiles; }

GemmTactics any_tactics(std::uint32_t m, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {
  GemmTactics found;
  for (std::uint32_t i = 0; i < kAnyTiles; ++i) {
    found.add({first_any(m) + i, 1});
  }
  return found;
}

GemmTactic select_any(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                      std::uint32_t num_sms) noexcept {
  const Shape shape = {m, n, k, num_sms};
  const GemmTactics all = any_tactics(m, n, k, num_sms);
  return *std::min_element(all.begin(), all.end(), [&](const GemmTactic& a, const GemmTactic& b) {
    return estimated_us(any_tile(a.tile), shape) < estimated_us(any_tile(b.tile), shape);
  });
}

// Takes any number of tokens, at most sixteen for each thread block.
Result<void> launch_any(const Kernel* kernels, std::uint32_t, const GemmCall& call) noexcept {
  const DecodeTile& tile = any_tile(call.tactic.tile);
  CUKILN_CHECK(check_token_blocks(tile, call.m, call.k));
  return launch_decode(kernels[call.tactic.tile], call, tile, tile.shared_bytes);
}

}  // namespace

const GemmArchitecture kGemmSm90 = {[](int capability) noexcept { return capability == 90; },
                                    kKernels.data(),
                                    kKernels.size(),
                                    workspace_bytes,
                                    sm90_tactics,
                                    select_sm90,
                                    launch};
const GemmArchitecture kGemmAny = {[](int) noexcept { return true; },
                                   kAnyKernels.data(),
                                   kAnyKernels.size(),
                                   no_workspace,
                                   any_tactics,
                                   select_any,
                                   launch_any};

}  // namespace cukiln::nvfp4::detail
