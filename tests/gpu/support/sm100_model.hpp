// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sm_100a GEMMs on sm_90a: the shipped source, with tensor memory and the tensor core
// modelled (tcgen05_model.cuh). Slow: one thread of a block multiplies.

#include <algorithm>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "embedded/test_device_code.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "nvfp4/host/sm100_launch.hpp"
#include "nvfp4/host/sm100_plan.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::testing {

inline constexpr int kSm100ModelCapability = 90;

/// The modelled kernel, ready to be launched on a device of that capability. An error ends the test
/// case.
template <class Signature = nvfp4::detail::Sm100GroupedGemm>
Kernel sm100_model(const nvfp4::Sm100Kernel& of) {
  constexpr const char* kSource = R"(
#include "gemm_sm100_swapped.cuh"
#define MODEL_SWAPPED_KERNEL(name, ...)                                                           \
  extern "C" __global__ void __launch_bounds__(192, 1)                                            \
      name(const __grid_constant__ cukiln::TensorMap rows,                                        \
           const __grid_constant__ cukiln::TensorMap columns,                                     \
           const __grid_constant__ cukiln::TensorMap row_scales,                                  \
           const __grid_constant__ cukiln::TensorMap column_scales, cukiln::u16* output,          \
           const float* a_scale, const float* b_scale, const cukiln::u16* bias, cukiln::u32 m,    \
           cukiln::u32 n, cukiln::u32 k, cukiln::u32 constant_b) {                                \
    cukiln::nvfp4::gemm_sm100_swapped<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                     \
        {rows, columns, row_scales, column_scales, rows, a_scale, b_scale, bias, m, n, k, nullptr, \
         0, constant_b, nullptr, output});                                                        \
  }
#define MODEL_KERNEL(name, ...)                                                                   \
  extern "C" __global__ void __launch_bounds__(192, 1)                                            \
      name(const __grid_constant__ cukiln::TensorMap rows,                                        \
           const __grid_constant__ cukiln::TensorMap columns,                                     \
           const __grid_constant__ cukiln::TensorMap row_scales,                                  \
           const __grid_constant__ cukiln::TensorMap column_scales,                               \
           const __grid_constant__ cukiln::TensorMap output, const float* a_scale,                \
           const float* b_scale, const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n,             \
           cukiln::u32 k, const int* experts, cukiln::u32 a_scales, const cukiln::u32* row_tiles) { \
    cukiln::nvfp4::gemm_sm100<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                             \
        {rows, columns, row_scales, column_scales, output, a_scale, b_scale, bias, m, n, k, experts, \
         a_scales, 0, row_tiles});                                                                \
  }
MODEL_KERNEL(nvfp4_gemm_128x128, 128, 1, false, false)
MODEL_KERNEL(nvfp4_gemm_128x256, 256, 1, false, false)
MODEL_SWAPPED_KERNEL(nvfp4_gemm_swapped_16, 16, 1, true, false)
MODEL_SWAPPED_KERNEL(nvfp4_gemm_swapped_64, 64, 1, true, false)
MODEL_SWAPPED_KERNEL(nvfp4_gemm_swapped_128, 128, 1, true, false)
MODEL_SWAPPED_KERNEL(nvfp4_gemm_swapped_64_half, 64, 1, true, false, 1, 64)
MODEL_KERNEL(nvfp4_gemm_grouped_128x128, 128, 1, false, true)
MODEL_KERNEL(nvfp4_gemm_grouped_128x256, 256, 1, false, true)
)";
  ModuleSpec spec;
  const Manifest manifest = nvfp4::manifest();
  for (const ModuleSpec& shipped : manifest.modules()) {
    if (shipped.name == "nvfp4_moe_grouped_up") spec = shipped;
  }
  for (const ModuleSpec& shipped : manifest.modules()) {
    if (shipped.name != "nvfp4_gemm") continue;
    for (const Source& header : shipped.headers) {
      const bool is_known =
          std::any_of(spec.headers.begin(), spec.headers.end(),
                      [&](const Source& known) { return name_of(known) == name_of(header); });
      if (!is_known) spec.headers.push_back(header);
    }
  }
  for (const embedded::File& file : embedded::test_device_code()) {
    spec.headers.push_back(SourceText{std::string(file.name), std::string(file.bytes)});
  }
  spec.name = "gemm_sm100_model";
  spec.sources.push_back(SourceText{"gemm_sm100_model.cu", kSource});
  spec.define = {{"CUKILN_BLOCK_SCALED_MMA", ""}, {"CUKILN_TCGEN05", "\"tcgen05_model.cuh\""}};
  spec.targets = {{kSm100ModelCapability, 'a'}};
  auto kernel = shipped_loader().get(spec, of.name);
  REQUIRE_MESSAGE(kernel, kernel.error().message(), "\n", kernel.error().log());
  require_ok(Signature::check(*kernel));
  require_ok(kernel->reserve_shared(of.shared_bytes));
  return *kernel;
}

/// `experts` is ignored by kernels that are not grouped.
inline Result<void> launch_sm100_model(const Kernel& kernel, Stream stream,
                                       const nvfp4::Sm100Plan& plan,
                                       const nvfp4::GlobalScale* a_scale,
                                       const nvfp4::GlobalScale* b_scale, const std::uint16_t* bias,
                                       std::int64_t m, std::int64_t n, std::int64_t k,
                                       const std::int32_t* experts, std::uint32_t a_scales,
                                       const std::uint32_t* row_tile_count = nullptr) noexcept {
  return nvfp4::detail::launch_sm100<nvfp4::detail::Sm100GroupedGemm>(
      kernel, stream, plan, a_scale, b_scale, bias, static_cast<std::uint32_t>(m),
      static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(k), experts, a_scales,
      row_tile_count);
}

}  // namespace cukiln::testing
