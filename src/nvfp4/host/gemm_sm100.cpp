// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <iterator>

#include "nvfp4/host/gemm_architecture.hpp"
#include "nvfp4/host/sm100_launch.hpp"
#include "nvfp4/host/sm100_select.hpp"
#include "nvfp4/host/sm100_table.hpp"

namespace cukiln::nvfp4::detail {
namespace {

constexpr auto kKernels = [] {
  std::array<GemmKernel, kSm100PlainCount> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Sm100Kernel& kernel = kSm100Kernels[i];
    all[i] = {kernel.module, kernel.name, kernel.shared_bytes,
              kernel.swapped ? Sm100SwappedGemm::check : Sm100Gemm::check};
  }
  return all;
}();

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

constexpr std::size_t kMaxTactics = [] {
  std::size_t count = 0;
  for (std::size_t i = 0; i < kSm100PlainCount; ++i) {
    for (const std::uint32_t splits : kSm100Splits) {
      count += splits <= kSm100Kernels[i].max_splits ? 1 : 0;
    }
  }
  return count;
}();
static_assert(kMaxTactics <= std::size(GemmTactics().all));

GemmTactics all_tactics(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                        std::uint32_t num_sms) noexcept {
  GemmTactics found;
  for (std::uint32_t kernel = 0; kernel < kKernels.size(); ++kernel) {
    for (const std::uint32_t splits : kSm100Splits) {
      if (applies({kernel, splits}, {m, n, k, num_sms})) {
        found.add({kernel, splits});
      }
    }
  }
  return found;
}

constexpr auto kTunedRows =
    find_kernels(sm100::kMeasuredRows, [](std::uint32_t i) { return kSm100Kernels[i].name; });
constexpr GemmTable kTuned = {kTunedRows.data(), kTunedRows.size(), sm100::kMeasuredSms};

/// The tuned tactic, else that of sm100_select.hpp.
GemmTactic select_kernel(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                         std::uint32_t num_sms) noexcept {
  const GemmTactic* const tuned = kTuned.find(m, n, k, num_sms);
  return tuned != nullptr ? *tuned : select_sm100({m, n, k, num_sms});
}

Result<void> launch(const Kernel* kernels, std::uint32_t num_sms, const GemmCall& call) noexcept {
  const Sm100Kernel& chosen = kSm100Kernels[call.tactic.kernel];
  const Sm100Plan plan =
      plan_sm100(chosen, call.a, call.b, call.output, call.n, num_sms, call.tactic.splits);
  const auto launch_with = [&](auto signature) {
    return launch_sm100<decltype(signature)>(
        kernels[call.tactic.kernel], call.stream, plan, call.a.global_scale, call.b.global_scale,
        call.bias, call.m, call.n, call.k, std::uint32_t{call.constant_b});
  };
  return chosen.swapped ? launch_with(Sm100SwappedGemm{}) : launch_with(Sm100Gemm{});
}

}  // namespace

const GemmArchitecture kGemmSm100 = {
    GroupedGemm::runs_on, kKernels.data(), kKernels.size(), no_workspace,
    all_tactics,          select_kernel,   launch};

}  // namespace cukiln::nvfp4::detail
