#include <algorithm>

#include "base/result.hpp"
#include "driver/tensor_map.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"

namespace cukiln::nvfp4::detail {
namespace {

// The order of the kernels below; decode's come first, for they alone are in kGemmAny.
enum : std::uint8_t {
  kDecode,
  kExpand = kDecode + 6,
  kPrefill64,
  kPrefill128,
  kPrefill256,
  kCount
};

constexpr std::int64_t kGroupK = 128;
constexpr std::uint32_t kAtomRows = 128;

Result<void> check_decode(const Kernel& kernel) {
  return check_parameters<std::uint16_t*, const std::uint8_t*, const std::uint8_t*, const float*,
                          const std::uint8_t*, const std::uint8_t*, const float*,
                          const std::uint16_t*, std::uint32_t, std::uint32_t, std::uint32_t>(
      kernel);
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

// Shared memory: gemm_sm90.cuh has the same numbers and refuses to compile with others.
constexpr GemmKernel kKernels[kCount] = {
    {"nvfp4_gemm_decode_8x2", 8192, check_decode},
    {"nvfp4_gemm_decode_8x4", 16384, check_decode},
    {"nvfp4_gemm_decode_8x7", 28672, check_decode},
    {"nvfp4_gemm_decode_16x2", 16384, check_decode},
    {"nvfp4_gemm_decode_16x4", 32768, check_decode},
    {"nvfp4_gemm_decode_16x7", 57344, check_decode},
    {"nvfp4_gemm_expand", 0, check_expand},
    {"nvfp4_gemm_prefill_64x128", 163936, check_prefill},
    {"nvfp4_gemm_prefill_128x128", 178240, check_prefill},
    {"nvfp4_gemm_prefill_128x256", 223296, check_prefill},
};

struct PrefillTile {
  std::uint8_t kernel;
  std::uint32_t tokens;
  std::uint32_t rows;
  double speed;  // relative, where every multiprocessor is busy; measured on an H200
};
constexpr PrefillTile kPrefillTiles[] = {
    {kPrefill64, 64, 128, 0.68}, {kPrefill128, 128, 128, 1.0}, {kPrefill256, 128, 256, 1.05}};

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) noexcept { return (a + b - 1) / b; }

std::size_t expanded_columns(std::int64_t k) noexcept {
  return static_cast<std::size_t>((k + kGroupK - 1) / kGroupK * kGroupK);
}

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t workspace_bytes(std::int64_t m, std::int64_t, std::int64_t k) {
  return m <= 16 ? 0 : static_cast<std::size_t>(m) * expanded_columns(k) * 2;
}

// A decode kernel's block takes 2, 4 or 7 units of 8 rows: the one whose last wave ends first.
constexpr std::uint32_t kDecodeUnits[] = {2, 4, 7};

Result<void> launch_decode(const Kernel* kernels, std::uint32_t multiprocessors,
                           const GemmCall& call) noexcept {
  const std::uint32_t units = ceil_div(call.n, kAtomRows) * 16;
  std::uint32_t size = 0;
  std::uint32_t least = UINT32_MAX;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::uint32_t blocks = ceil_div(units, kDecodeUnits[i]);
    const std::uint32_t time = ceil_div(blocks, multiprocessors) * (kDecodeUnits[i] + 1);
    if (time < least) {
      least = time;
      size = i;
    }
  }
  const std::uint32_t tokens = call.m <= 8 ? 8 : 16;
  const std::uint32_t which = kDecode + (tokens == 8 ? 0 : 3) + size;
  LaunchConfig config;
  config.grid = {ceil_div(units, kDecodeUnits[size]), ceil_div(call.m, tokens), 1};
  config.block.x = 512;
  config.shared_bytes = kKernels[which].shared_bytes;
  return launch_checked(kernels[which], call.stream, config, call.output, call.a.codes,
                        call.a.scales, call.a.gsa, call.b.codes, call.b.scales, call.b.gsa,
                        call.bias, call.m, call.n, call.k);
}

// Whole waves of tiles, each as long as its tile.
const PrefillTile& tile_for(std::uint32_t m, std::uint32_t n, std::uint32_t multiprocessors) {
  const auto time = [&](const PrefillTile& tile) {
    const std::uint64_t tiles = std::uint64_t{ceil_div(m, tile.tokens)} * ceil_div(n, tile.rows);
    const std::uint64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
    return static_cast<double>(waves * tile.tokens * tile.rows) / tile.speed;
  };
  const PrefillTile* best = &kPrefillTiles[0];
  for (const PrefillTile& tile : kPrefillTiles) {
    if (time(tile) < time(*best)) {
      best = &tile;
    }
  }
  return *best;
}

Result<void> launch_prefill(const Kernel* kernels, std::uint32_t multiprocessors,
                            const GemmCall& call) noexcept {
  const PrefillTile& tile = tile_for(call.m, call.n, multiprocessors);
  const Kernel& kernel = kernels[tile.kernel];
  const std::size_t columns = expanded_columns(call.k);
  LaunchConfig config;
  config.block.x = 256;
  config.grid.x = static_cast<std::uint32_t>(
      std::min<std::uint64_t>((call.m * (columns / 8) + 255) / 256, multiprocessors * 16));
  CUKILN_CHECK(launch_checked(kernels[kExpand], call.stream, config, call.workspace, call.a.codes,
                              call.a.scales, call.m, call.k));

  TensorBox tokens;
  tokens.element = TensorBox::Element::f16;
  tokens.swizzled = true;
  tokens.data = call.workspace;
  tokens.size[0] = columns;
  tokens.size[1] = call.m;
  tokens.stride[0] = columns * 2;
  tokens.box[0] = 64;
  tokens.box[1] = tile.tokens;
  TensorBox codes;
  codes.data = call.b.codes;
  codes.size[0] = call.k / 2;
  codes.size[1] = call.n;
  codes.stride[0] = call.k / 2;
  codes.box[0] = 64;
  codes.box[1] = tile.rows;
  CUKILN_TRY(const TensorMap token_map, tensor_map(kernel, tokens));
  CUKILN_TRY(const TensorMap code_map, tensor_map(kernel, codes));
  config = {};
  config.grid.x =
      std::min(ceil_div(call.m, tile.tokens) * ceil_div(call.n, tile.rows), multiprocessors);
  config.block.x = 384;
  config.shared_bytes = kKernels[tile.kernel].shared_bytes;
  return launch_checked(kernel, call.stream, config, call.output, token_map, code_map,
                        call.b.scales, call.a.gsa, call.b.gsa, call.bias, call.m, call.n, call.k);
}

Result<void> launch_any(const Kernel* kernels, std::uint32_t multiprocessors,
                        const GemmCall& call) noexcept {
  return launch_decode(kernels, multiprocessors, call);
}

Result<void> launch(const Kernel* kernels, std::uint32_t multiprocessors,
                    const GemmCall& call) noexcept {
  return call.m <= 16 ? launch_decode(kernels, multiprocessors, call)
                      : launch_prefill(kernels, multiprocessors, call);
}

}  // namespace

const GemmArchitecture kGemmSm90 = {90, kKernels, kCount, workspace_bytes, launch};
const GemmArchitecture kGemmAny = {0, kKernels, kExpand, no_workspace, launch_any};

}  // namespace cukiln::nvfp4::detail
