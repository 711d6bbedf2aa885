// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <iterator>

#include "kernels/nvfp4/sm100_launch.hpp"
#include "kernels/nvfp4/sm100_table.hpp"

namespace cukiln::nvfp4::detail {
namespace {

// The first ones of kSm100Kernels: those that are not grouped.
constexpr std::size_t kCount = kSm100Plain + 1;

constexpr auto kKernels = [] {
  std::array<GemmKernel, kCount> all{};
  for (std::size_t i = 0; i < kCount; ++i) {
    all[i] = {"nvfp4_gemm", kSm100Kernels[i].name, kSm100Kernels[i].shared_bytes, check_sm100<>};
  }
  return all;
}();

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t count_tactics(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {
  return kCount;
}

const Sm100Kernel& kernel_for(const GemmCall& call, std::uint32_t multiprocessors) noexcept {
  if (call.options.tactic >= 0) {
    return kSm100Kernels[call.options.tactic];
  }
  const GemmTactic* const tuned = sm100::kTuned.find(call.m, call.n, call.k, multiprocessors);
  return tuned != nullptr ? kSm100Kernels[tuned->tile]
                          : sm100_kernel_for(call.m, call.n, multiprocessors);
}

Result<void> launch(const Kernel* kernels, std::uint32_t multiprocessors,
                    const GemmCall& call) noexcept {
  const Sm100Kernel& chosen = kernel_for(call, multiprocessors);
  const Sm100Plan plan = plan_sm100(chosen, {call.a.codes, call.a.scales, call.m},
                                    {call.b.codes, call.b.scales, call.n}, call.output, call.n,
                                    call.k, multiprocessors);
  return launch_sm100(kernels[&chosen - kSm100Kernels], call.stream, plan, call.a.gsa, call.b.gsa,
                      call.bias, call.m, call.n, call.k);
}

}  // namespace

const GemmArchitecture kGemmSm100 = {100,          kKernels.data(), kCount,
                                     no_workspace, count_tactics,   launch};
const GemmArchitecture kGemmSm103 = {103,          kKernels.data(), kCount,
                                     no_workspace, count_tactics,   launch};

}  // namespace cukiln::nvfp4::detail
