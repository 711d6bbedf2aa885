#include <array>
#include <iterator>

#include "base/result.hpp"
#include "driver/tensor_map.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"

namespace cukiln::nvfp4::detail {
namespace {

Result<void> check(const Kernel& kernel) {
  return check_parameters<TensorMap, TensorMap, TensorMap, TensorMap, TensorMap, const float*,
                          const float*, const std::uint16_t*, std::uint32_t, std::uint32_t,
                          std::uint32_t>(kernel);
}

// The first ones of kSm100Kernels: those that are not grouped.
constexpr std::size_t kCount = kSm100Plain + 1;

constexpr auto kKernels = [] {
  std::array<GemmKernel, kCount> all{};
  for (std::size_t i = 0; i < kCount; ++i) {
    all[i] = {kSm100Kernels[i].name, kSm100Kernels[i].shared_bytes, check};
  }
  return all;
}();

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

Result<void> launch(const Kernel* kernels, std::uint32_t multiprocessors,
                    const GemmCall& call) noexcept {
  const Sm100Kernel& chosen = sm100_kernel_for(call.m, call.n, multiprocessors);
  const Sm100Plan plan = plan_sm100(chosen, {call.a.codes, call.a.scales, call.m},
                                    {call.b.codes, call.b.scales, call.n}, call.output, call.n,
                                    call.k, multiprocessors);
  const Kernel& kernel = kernels[&chosen - kSm100Kernels];
  CUKILN_TRY(const TensorMap rows, tensor_map(kernel, plan.rows));
  CUKILN_TRY(const TensorMap columns, tensor_map(kernel, plan.columns));
  CUKILN_TRY(const TensorMap row_scales, tensor_map(kernel, plan.row_scales));
  CUKILN_TRY(const TensorMap column_scales, tensor_map(kernel, plan.column_scales));
  CUKILN_TRY(const TensorMap output, tensor_map(kernel, plan.output));
  LaunchConfig config;  // the pairs of CTAs are the kernel's own attribute
  config.grid.x = plan.grid;
  config.block.x = kSm100BlockThreads;
  config.shared_bytes = chosen.shared_bytes;
  return launch_checked(kernel, call.stream, config, rows, columns, row_scales, column_scales,
                        output, call.a.gsa, call.b.gsa, call.bias, call.m, call.n, call.k);
}

}  // namespace

const GemmArchitecture kGemmSm100 = {100, kKernels.data(), kCount, no_workspace, launch};
const GemmArchitecture kGemmSm103 = {103, kKernels.data(), kCount, no_workspace, launch};

}  // namespace cukiln::nvfp4::detail
