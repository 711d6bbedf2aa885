// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cassert>

#include "base/result.hpp"
#include "kernels/device_kernels.hpp"
#include "kernels/kernel_signature.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/sm90_launch.hpp"
#include "kernels/nvfp4/w4a16_plan.hpp"

#include <cukiln/tensor_map.hpp>

#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after TensorMap

namespace cukiln::nvfp4 {
namespace w4a16 {
namespace {

struct Call {
  Stream stream;
  std::uint16_t* output;
  const std::uint16_t* a;
  std::uint64_t a_stride;
  QuantizedMatrix b;
  const std::uint16_t* bias;
  Shape shape;
  void* workspace;
  bool constant_b;
};

using Decode = kernels::KernelSignature<signatures::W4a16GemmDecode>;
using Arrange = kernels::KernelSignature<signatures::W4a16GemmArrange>;
using Prefill = kernels::KernelSignature<signatures::W4a16GemmPrefill>;

constexpr std::uint32_t kArrangeThreads = 256;

struct ModuleKernel {
  const char* module;
  const char* name;
  std::uint32_t shared_bytes;
  Result<void> (*check)(const Kernel& kernel);
};

// Decode kernels, then prefill kernels, then the one that arranges tokens.
constexpr std::size_t kFirstPrefillKernel = std::size(kDecodeTiles);
constexpr std::size_t kArrangeIndex = kKernelCount - 1;

constexpr const char* module_of(const DecodeTile& tile) noexcept {
  return tile.tokens == 8    ? "nvfp4_w4a16_gemm"
         : tile.tokens == 16 ? "nvfp4_w4a16_gemm_16"
                             : "nvfp4_w4a16_gemm_32";
}

constexpr auto kKernels = [] {
  std::array<ModuleKernel, kKernelCount> all{};
  for (std::size_t i = 0; i < kFirstPrefillKernel; ++i) {
    const DecodeTile& tile = kDecodeTiles[i];
    all[i] = {module_of(tile), tile.name, std::max(tile.shared_bytes, sm90::kOccupancy1Bytes),
              Decode::check};
  }
  for (std::size_t i = 0; i < std::size(kPrefillTiles); ++i) {
    const PrefillTile& tile = kPrefillTiles[i];
    all[kFirstPrefillKernel + i] = {"nvfp4_w4a16_gemm_prefill", tile.name,
                                    std::max(tile.shared_bytes, sm90::kOccupancy1Bytes),
                                    Prefill::check};
  }
  all[kArrangeIndex] = {"nvfp4_w4a16_gemm_prefill", "w4a16_gemm_arrange", 0, Arrange::check};
  return all;
}();

// Whether every device runs the kernel.
bool is_any_kernel(std::size_t index) noexcept {
  for (const std::uint64_t tokens : {std::uint64_t{8}, kMaxAnyTokens}) {
    const std::size_t first = decode_tiles_for(tokens).first;
    if (index >= first && index < first + kAnyTiles) {
      return true;
    }
  }
  return false;
}

Result<void> launch_decode(const Kernel& kernel, const Call& call, const DecodeTile& tile,
                           std::uint32_t shared_bytes) noexcept {
  constexpr std::uint32_t kBoxBytes = 128;
  TensorBox weights = sm90::data_box(call.b, tile.rows, kBoxBytes);
  weights.swizzled = true;
  CUKILN_TRY(const TensorMap weight_map, tensor_map(kernel, weights));
  const Shape& shape = call.shape;
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(ceil_div(shape.n, tile.rows));
  config.grid.y = static_cast<std::uint32_t>(ceil_div(shape.m, tile.tokens));
  config.block.x = sm90::block_threads(tile);
  config.shared_bytes = shared_bytes;
  config.programmatic_launch = true;  // the kernel itself waits for what it reads
  return Decode::launch(kernel, call.stream, config, call.output, call.a, call.a_stride, weight_map,
                        call.b.scales, &call.b.global_scale->encode, call.bias,
                        static_cast<std::uint32_t>(shape.m), static_cast<std::uint32_t>(shape.n),
                        static_cast<std::uint32_t>(shape.k), std::uint32_t{call.constant_b});
}

Result<void> launch_arrange(const Kernel& kernel, const Call& call,
                            std::uint64_t columns) noexcept {
  constexpr std::uint64_t kBlocksPerSm = 16;  // in total, not at the same time
  constexpr std::uint64_t kThreadColumns = 32;
  const Shape& shape = call.shape;
  LaunchConfig config;
  config.block.x = kArrangeThreads;
  config.grid.x = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(ceil_div(shape.m * (columns / kThreadColumns), kArrangeThreads),
                              shape.num_sms * kBlocksPerSm));
  config.programmatic_launch = true;  // the kernel itself waits
  return Arrange::launch(kernel, call.stream, config, static_cast<std::uint16_t*>(call.workspace),
                         call.a, call.a_stride, static_cast<std::uint32_t>(shape.m),
                         static_cast<std::uint32_t>(shape.k));
}

Result<void> launch_prefill(const Kernel* kernels, const Call& call,
                            const GemmTactic& tactic) noexcept {
  const Shape& shape = call.shape;
  CUKILN_CHECK(launch_arrange(kernels[kArrangeIndex], call, sm90::whole_groups(shape.k)));
  const PrefillTile& tile = kPrefillTiles[tactic.tile];
  const Kernel& kernel = kernels[kFirstPrefillKernel + tactic.tile];
  CUKILN_TRY(
      const TensorMap token_map,
      tensor_map(kernel, sm90::token_box(TensorBox::Element::bf16, call.workspace, tile, shape)));
  CUKILN_TRY(const TensorMap weight_map,
             tensor_map(kernel, sm90::data_box(call.b, tile.rows, sm90::kGroupK / 2)));
  LaunchConfig config = sm90::prefill_config(tile, tactic.splits, shape);
  if (config.grid.x <= shape.num_sms) {  // not two on one SM, while others have none
    config.shared_bytes = std::max(config.shared_bytes, sm90::kOccupancy1Bytes);
  }
  return Prefill::launch(kernel, call.stream, config, call.output, token_map, weight_map,
                         call.b.scales, &call.b.global_scale->encode, call.bias,
                         static_cast<std::uint32_t>(shape.m), static_cast<std::uint32_t>(shape.n),
                         static_cast<std::uint32_t>(shape.k));
}

Result<void> launch_sm90(const Kernel* kernels, const Call& call, int given) noexcept {
  const Shape& shape = call.shape;
  GemmTactic tactic;
  if (given < 0) {
    tactic = select_w4a16(shape);
  } else {
    const W4a16Tactics tactics = w4a16_tactics(shape);
    assert(static_cast<std::size_t>(given) < tactics.count);
    tactic = tactics.all[static_cast<std::size_t>(given)];
  }
  if (!is_decode(shape)) {
    return launch_prefill(kernels, call, tactic);
  }
  const std::size_t index = decode_tiles_for(shape.m).first + tactic.tile;
  const DecodeTile& tile = kDecodeTiles[index];
  return launch_decode(kernels[index], call, tile,
                       sm90::evenly_spread_bytes(tile, block_count(tile, shape), shape));
}

// Any number of tokens, at most sixteen for each thread block.
Result<void> launch_any(const Kernel* kernels, const Call& call, int given) noexcept {
  const std::uint32_t first = decode_tiles_for(std::min(call.shape.m, kMaxAnyTokens)).first;
  const std::uint32_t tile =
      given < 0 ? select_any_tile(call.shape) : static_cast<std::uint32_t>(given);
  const DecodeTile& chosen = kDecodeTiles[first + tile];
  CUKILN_CHECK(sm90::check_token_blocks(chosen, call.shape.m, call.shape.k));
  return launch_decode(kernels[first + tile], call, chosen, chosen.shared_bytes);
}

Result<void> check_a(const MatrixView& a, const QuantizedMatrix& b) noexcept {
  CUKILN_CHECK(kernels::check_matrix("a", a, DataType::bf16, 16));
  CUKILN_CHECK(detail::check_operand_sizes("b", b));
  if (a.columns != b.columns) {
    return kernels::refuse("a is [{}, {}] and b [{}, {}]; the same number of columns is expected",
                           a.rows, a.columns, b.rows, b.columns);
  }
  if (b.rows % 8 != 0) {
    return kernels::refuse("b is [{}, {}]; a multiple of 8 rows is expected", b.rows, b.columns);
  }
  if (a.rows > 1 && (a.row_stride < a.columns || a.row_stride % 8 != 0)) {
    return kernels::refuse(
        "a has a row stride of {}; a multiple of 8, no less than its {} columns, is expected",
        a.row_stride, a.columns);
  }
  return {};
}

}  // namespace
}  // namespace w4a16

Result<W4a16Gemm> W4a16Gemm::create(KernelLoader& loader, int device) {
  static_assert(w4a16::kKernelCount <= kMaxKernels);
  return guarded([&]() -> Result<W4a16Gemm> {
    CUKILN_TRY(const kernels::DeviceKernels kernels, kernels::DeviceKernels::open(loader, device));
    CUKILN_CHECK(detail::check_hopper_or_later(kernels.info(), "nvfp4_w4a16_gemm"));
    W4a16Gemm made;
    made.is_sm90_ = kernels.info().capability == 90;
    for (std::size_t i = 0; i < w4a16::kKernelCount; ++i) {
      if (!made.is_sm90_ && !w4a16::is_any_kernel(i)) {
        continue;
      }
      const w4a16::ModuleKernel& wanted = w4a16::kKernels[i];
      CUKILN_TRY(made.kernels_[i], kernels.get(wanted.module, wanted.name));
      CUKILN_CHECK(wanted.check(made.kernels_[i]));
      CUKILN_CHECK(made.kernels_[i].reserve_shared(
          made.is_sm90_ ? wanted.shared_bytes : w4a16::kDecodeTiles[i].shared_bytes));
    }
    made.device_ = kernels.device();
    return made;
  });
}

std::size_t W4a16Gemm::workspace_bytes(std::int64_t m, std::int64_t n,
                                       std::int64_t k) const noexcept {
  if (!is_sm90_ || m <= static_cast<std::int64_t>(w4a16::kMaxDecodeTokens) || n <= 0 || k <= 0) {
    return 0;
  }
  return static_cast<std::uint64_t>(m) * sm90::whole_groups(static_cast<std::uint64_t>(k)) * 2;
}

int W4a16Gemm::tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  if (device_.num_sms == 0 || m <= 0 || n <= 0 || k <= 0) {
    return 0;
  }
  return is_sm90_
             ? static_cast<int>(w4a16::w4a16_tactics(
                                    {static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n),
                                     static_cast<std::uint64_t>(k), device_.num_sms})
                                    .count)
             : static_cast<int>(w4a16::kAnyTiles);
}

Result<void> W4a16Gemm::launch(Stream stream, const MutableMatrixView& output, const MatrixView& a,
                               const QuantizedMatrix& b, const Workspace& workspace,
                               const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("W4a16Gemm", device_));
  CUKILN_CHECK(w4a16::check_a(a, b));
  CUKILN_CHECK(kernels::check_dense_matrix("output", output, DataType::bf16, a.rows, b.rows, 16));
  if (output.is_empty()) {
    return {};
  }
  CUKILN_CHECK(detail::check_operand_pointers("b", b));
  CUKILN_CHECK(kernels::check_optional_vector("bias", options.bias, DataType::bf16, b.rows, 16));
  CUKILN_CHECK(check_workspace(workspace, workspace_bytes(a.rows, b.rows, a.columns), 16));
  const int count = tactics(a.rows, b.rows, a.columns);
  if (options.tactic >= count) {
    return kernels::refuse(
        "tactic is {}; [{}, {}, {}] has {}, counted from 0, and -1 selects the one expected to be "
        "fastest",
        options.tactic, a.rows, b.rows, a.columns, count);
  }
  const w4a16::Call call = {stream,
                            output.data_as<std::uint16_t>(),
                            a.data_as<const std::uint16_t>(),
                            static_cast<std::uint64_t>(a.row_stride),
                            b,
                            options.bias.data_as<const std::uint16_t>(),
                            {static_cast<std::uint64_t>(a.rows), static_cast<std::uint64_t>(b.rows),
                             static_cast<std::uint64_t>(a.columns), device_.num_sms},
                            workspace.data,
                            options.constant_b};
  return is_sm90_ ? w4a16::launch_sm90(kernels_, call, options.tactic)
                  : w4a16::launch_any(kernels_, call, options.tactic);
}

}  // namespace cukiln::nvfp4
