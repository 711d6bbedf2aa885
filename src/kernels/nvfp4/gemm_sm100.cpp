// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm100_launch.hpp"
#include "kernels/nvfp4/sm100_table.hpp"

namespace cukiln::nvfp4::detail {
namespace {

constexpr auto kKernels = [] {
  std::array<GemmKernel, kSm100PlainCount> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = {"nvfp4_gemm", kSm100Kernels[i].name, kSm100Kernels[i].shared_bytes, Sm100Gemm::check};
  }
  return all;
}();

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t count_tactics(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {
  return kKernels.size();
}

/// The caller's tactic, else the tuned one, else the estimate of sm100_plan.hpp.
const Sm100Kernel& select_kernel(const GemmCall& call, std::uint32_t num_sms) noexcept {
  if (call.tactic >= 0) {
    return kSm100Kernels[call.tactic];
  }
  const GemmTactic* const tuned = sm100::kTuned.find(call.m, call.n, call.k, num_sms);
  return tuned != nullptr ? kSm100Kernels[tuned->tile] : select_sm100(call.m, call.n, num_sms);
}

Result<void> launch(const Kernel* kernels, std::uint32_t num_sms, const GemmCall& call) noexcept {
  const Sm100Kernel& chosen = select_kernel(call, num_sms);
  const Sm100Plan plan = plan_sm100(chosen, call.a, call.b, call.output, call.n, num_sms);
  return launch_sm100<Sm100Gemm>(kernels[&chosen - kSm100Kernels], call.stream, plan,
                                 call.a.global_scale, call.b.global_scale, call.bias, call.m,
                                 call.n, call.k);
}

}  // namespace

const GemmArchitecture kGemmSm100 = {GroupedGemm::runs_on, kKernels.data(), kKernels.size(),
                                     no_workspace,         count_tactics,   launch};

}  // namespace cukiln::nvfp4::detail
