#include <algorithm>
#include <iterator>

#include "base/result.hpp"
#include "driver/tensor_map.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"

namespace cukiln::nvfp4::detail {
namespace {

constexpr std::uint32_t kGroupK = 128;  // what the kernels take of K at a time
constexpr std::uint32_t kMostDecodeTokens = 16;
constexpr std::uint32_t kDecodeThreads = 256;
constexpr std::uint32_t kExpandThreads = 256;
constexpr std::uint32_t kPrefillThreads = 384;
constexpr std::uint32_t kMostSplits = 4;

Result<void> check_decode(const Kernel& kernel) {
  return check_parameters<std::uint16_t*, TensorMap, TensorMap, const std::uint8_t*,
                          const std::uint8_t*, const float*, const float*, const std::uint16_t*,
                          std::uint32_t, std::uint32_t, std::uint32_t>(kernel);
}

Result<void> check_expand(const Kernel& kernel) {
  return check_parameters<void*, const std::uint8_t*, const std::uint8_t*, std::uint32_t,
                          std::uint32_t>(kernel);
}

Result<void> check_prefill(const Kernel& kernel) {
  return check_parameters<std::uint16_t*, TensorMap, TensorMap, const std::uint8_t*, const float*,
                          const float*, const std::uint16_t*, std::uint32_t, std::uint32_t,
                          std::uint32_t>(kernel);
}

// Decode's kernels come first, for they alone are in kGemmAny. Shared memory: gemm_sm90.cuh has the
// same numbers and refuses to compile with others.
constexpr GemmKernel kKernels[] = {
    {"nvfp4_gemm_decode_8x2", 61696, check_decode},
    {"nvfp4_gemm_decode_8x4", 78080, check_decode},
    {"nvfp4_gemm_decode_8x7", 102656, check_decode},
    {"nvfp4_gemm_decode_16x2", 73984, check_decode},
    {"nvfp4_gemm_decode_16x4", 90368, check_decode},
    {"nvfp4_gemm_decode_16x7", 114944, check_decode},
    {"nvfp4_gemm_prefill_32x128", 97360, check_prefill},
    {"nvfp4_gemm_prefill_64x128", 112704, check_prefill},
    {"nvfp4_gemm_prefill_128x128", 178240, check_prefill},
    {"nvfp4_gemm_prefill_128x256", 223296, check_prefill},
    {"nvfp4_gemm_expand", 0, check_expand},
};
constexpr std::size_t kKernelCount = std::size(kKernels);

struct DecodeTile {
  std::uint32_t rows;
  double alone;   // microseconds of a block that has its multiprocessor to itself,
  double shared;  // and of two that share it; an H200, K = 7168
};
constexpr DecodeTile kDecodeTiles[] = {{16, 6.3, 8.5}, {32, 7.6, 13.6}, {56, 13.0, 20.0}};
constexpr std::size_t kDecode8 = 0;
constexpr std::size_t kDecode16 = kDecode8 + std::size(kDecodeTiles);

struct PrefillTile {
  std::uint32_t tokens;
  std::uint32_t rows;
  std::uint32_t resident;  // thread blocks that share a multiprocessor
  double group;            // microseconds for 128 of K, on a full multiprocessor; an H200
};
constexpr PrefillTile kPrefillTiles[] = {
    {32, 128, 2, 0.95}, {64, 128, 2, 1.05}, {128, 128, 1, 0.66}, {128, 256, 1, 1.31}};
constexpr std::size_t kPrefill = kDecode16 + std::size(kDecodeTiles);
constexpr std::size_t kExpand = kPrefill + std::size(kPrefillTiles);
static_assert(kExpand + 1 == kKernelCount);

// What adding a cluster's parts of a tile costs, in microseconds; an H200.
double split_cost(const PrefillTile& tile) noexcept {
  return 2.0 + 3.0 * tile.tokens * tile.rows / (128 * 128);
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

std::uint64_t expanded_columns(std::uint64_t k) noexcept { return ceil_div(k, kGroupK) * kGroupK; }

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t workspace_bytes(std::int64_t m, std::int64_t, std::int64_t k) {
  return m <= kMostDecodeTokens
             ? 0
             : static_cast<std::size_t>(m) * expanded_columns(static_cast<std::uint64_t>(k)) * 2;
}

// Codes of 128 of K: 64 bytes of `box_rows` rows.
TensorBox codes_box(const std::uint8_t* codes, std::uint32_t rows, std::uint32_t k,
                    std::uint32_t box_rows) noexcept {
  TensorBox box;
  box.data = codes;
  box.size[0] = k / 2;
  box.size[1] = rows;
  box.stride[0] = k / 2;
  box.box[0] = kGroupK / 2;
  box.box[1] = box_rows;
  return box;
}

// The tile whose blocks end first: two blocks to a multiprocessor, wave after wave.
std::size_t decode_tile_for(std::uint64_t n, std::uint64_t token_tiles,
                            std::uint32_t multiprocessors) noexcept {
  std::size_t best = 0;
  double least = 0;
  for (std::size_t i = 0; i < std::size(kDecodeTiles); ++i) {
    const DecodeTile& tile = kDecodeTiles[i];
    const std::uint64_t blocks = ceil_div(n, tile.rows) * token_tiles;
    const std::uint64_t turns = ceil_div(blocks, multiprocessors);
    const double time =
        static_cast<double>(turns / 2) * tile.shared + static_cast<double>(turns % 2) * tile.alone;
    if (i == 0 || time < least) {
      best = i;
      least = time;
    }
  }
  return best;
}

Result<void> launch_decode(const Kernel* kernels, std::uint32_t multiprocessors,
                           const GemmCall& call) noexcept {
  const std::uint32_t tokens = call.m <= 8 ? 8 : 16;
  const std::uint64_t token_tiles = ceil_div(call.m, tokens);
  const std::size_t tile = decode_tile_for(call.n, token_tiles, multiprocessors);
  const std::size_t which = (tokens == 8 ? kDecode8 : kDecode16) + tile;
  const std::uint32_t rows = kDecodeTiles[tile].rows;
  CUKILN_TRY(const TensorMap token_map,
             tensor_map(kernels[which], codes_box(call.a.codes, call.m, call.k, tokens)));
  CUKILN_TRY(const TensorMap code_map,
             tensor_map(kernels[which], codes_box(call.b.codes, call.n, call.k, rows)));
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(ceil_div(call.n, rows));
  config.grid.y = static_cast<std::uint32_t>(token_tiles);
  config.block.x = kDecodeThreads;
  config.shared_bytes = kKernels[which].shared_bytes;
  config.programmatic_launch = call.options.constant_b;
  return launch_checked(kernels[which], call.stream, config, call.output, token_map, code_map,
                        call.a.scales, call.b.scales, call.a.gsa, call.b.gsa, call.bias, call.m,
                        call.n, call.k);
}

struct PrefillPlan {
  std::size_t tile;
  std::uint32_t splits;  // of K, by a cluster
  std::uint64_t tiles;
};

PrefillPlan prefill_plan_for(const GemmCall& call, std::uint32_t multiprocessors) noexcept {
  const std::uint64_t groups = ceil_div(call.k, kGroupK);
  PrefillPlan best{};
  double least = 0;
  for (std::size_t i = 0; i < std::size(kPrefillTiles); ++i) {
    const PrefillTile& tile = kPrefillTiles[i];
    const std::uint64_t tiles = ceil_div(call.m, tile.tokens) * ceil_div(call.n, tile.rows);
    for (std::uint32_t splits = 1; splits <= kMostSplits && splits <= groups; splits *= 2) {
      const std::uint64_t blocks = tiles * splits;
      const std::uint64_t turns = ceil_div(blocks, multiprocessors);
      const std::uint64_t waves = ceil_div(turns, tile.resident);
      // A block that has its multiprocessor to itself is faster, but not by much.
      const double share = turns < tile.resident ? 0.6 : 1.0;
      const double time =
          static_cast<double>(waves * ceil_div(groups, splits)) * tile.group * share +
          (splits > 1 ? split_cost(tile) : 0);
      if (least == 0 || time < least) {
        best = {i, splits, tiles};
        least = time;
      }
    }
  }
  return best;
}

Result<void> launch_prefill(const Kernel* kernels, std::uint32_t multiprocessors,
                            const GemmCall& call) noexcept {
  const std::uint64_t columns = expanded_columns(call.k);
  LaunchConfig config;
  config.block.x = kExpandThreads;
  config.grid.x = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      ceil_div(call.m * (columns / 8), kExpandThreads), std::uint64_t{multiprocessors} * 16));
  CUKILN_CHECK(launch_checked(kernels[kExpand], call.stream, config, call.workspace, call.a.codes,
                              call.a.scales, call.m, call.k));

  const PrefillPlan plan = prefill_plan_for(call, multiprocessors);
  const PrefillTile& tile = kPrefillTiles[plan.tile];
  const Kernel& kernel = kernels[kPrefill + plan.tile];
  TensorBox tokens;
  tokens.element = TensorBox::Element::f16;
  tokens.swizzled = true;
  tokens.data = call.workspace;
  tokens.size[0] = columns;
  tokens.size[1] = call.m;
  tokens.stride[0] = columns * 2;
  tokens.box[0] = 64;
  tokens.box[1] = tile.tokens;
  CUKILN_TRY(const TensorMap token_map, tensor_map(kernel, tokens));
  CUKILN_TRY(const TensorMap code_map,
             tensor_map(kernel, codes_box(call.b.codes, call.n, call.k, tile.rows)));
  config = {};
  config.block.x = kPrefillThreads;
  config.shared_bytes = kKernels[kPrefill + plan.tile].shared_bytes;
  config.programmatic_launch = true;  // the kernel waits for the expanded tokens itself
  if (plan.splits == 1) {             // persistent: a block takes tile after tile
    config.grid.x = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(plan.tiles, std::uint64_t{multiprocessors} * tile.resident));
  } else {
    config.grid.x = static_cast<std::uint32_t>(plan.tiles * plan.splits);
    config.cluster = {plan.splits, 1, 1};
  }
  return launch_checked(kernel, call.stream, config, call.output, token_map, code_map,
                        call.b.scales, call.a.gsa, call.b.gsa, call.bias, call.m, call.n, call.k);
}

Result<void> launch(const Kernel* kernels, std::uint32_t multiprocessors,
                    const GemmCall& call) noexcept {
  return call.m <= kMostDecodeTokens ? launch_decode(kernels, multiprocessors, call)
                                     : launch_prefill(kernels, multiprocessors, call);
}

}  // namespace

const GemmArchitecture kGemmSm90 = {90, kKernels, kKernelCount, workspace_bytes, launch};
const GemmArchitecture kGemmAny = {0, kKernels, kPrefill, no_workspace, launch_decode};

}  // namespace cukiln::nvfp4::detail
