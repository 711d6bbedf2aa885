#include <algorithm>
#include <iterator>

#include "base/result.hpp"
#include "driver/tensor_map.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm90_plan.hpp"

namespace cukiln::nvfp4::detail {
namespace {

using namespace sm90;

constexpr std::uint32_t kMostDecodeTokens = 16;
constexpr std::uint32_t kDecodeThreads = 256;
constexpr std::uint32_t kExpandThreads = 256;
constexpr std::uint32_t kPrefillThreads = 384;

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

constexpr std::size_t kDecode8 = 0;
constexpr std::size_t kDecode16 = kDecode8 + std::size(kDecodeTiles);

constexpr std::size_t kPrefill = kDecode16 + std::size(kDecodeTiles);
constexpr std::size_t kExpand = kPrefill + std::size(kPrefillTiles);
static_assert(kExpand + 1 == kKernelCount);

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

Result<void> launch_prefill(const Kernel* kernels, std::uint32_t multiprocessors,
                            const GemmCall& call) noexcept {
  const std::uint64_t columns = expanded_columns(call.k);
  LaunchConfig config;
  config.block.x = kExpandThreads;
  config.grid.x = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      ceil_div(call.m * (columns / 8), kExpandThreads), std::uint64_t{multiprocessors} * 16));
  CUKILN_CHECK(launch_checked(kernels[kExpand], call.stream, config, call.workspace, call.a.codes,
                              call.a.scales, call.m, call.k));

  const PrefillPlan plan = prefill_plan_for(call.m, call.n, call.k, multiprocessors);
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
