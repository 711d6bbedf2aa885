// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/gemm_kernels.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "nvfp4/host/gemm_checks.hpp"

#include <cukiln/blob_store.hpp>

namespace cukiln::nvfp4 {
namespace detail {
namespace {

// Sizes that a launch accepts.
bool is_shape(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  return m > 0 && n > 0 && k > 0 && m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX;
}

GemmTactics tactics_of(const GemmKernels& gemm, std::int64_t m, std::int64_t n,
                       std::int64_t k) noexcept {
  return gemm.architecture->tactics(static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n),
                                    static_cast<std::uint32_t>(k), gemm.device.num_sms);
}

/// The choice of GemmOptions::tactic. Errors: invalid_argument (there is no such tactic).
Result<GemmTactic> choose_tactic(const GemmKernels& gemm, std::int64_t m, std::int64_t n,
                                 std::int64_t k, int tactic) noexcept {
  if (tactic >= 0) {
    const GemmTactics all = tactics_of(gemm, m, n, k);
    if (static_cast<std::size_t>(tactic) < all.count) {
      return all.all[tactic];
    }
    return kernels::refuse(
               "tactic is {}; [{}, {}, {}] has {}, counted from 0, and -1 selects the one expected "
               "to be fastest",
               tactic, m, n, k, all.count)
        .error();
  }
  const std::uint32_t num_sms = gemm.device.num_sms;
  const auto narrow = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const GemmTactic* const kept =
      gemm.stored->table().find(narrow(m), narrow(n), narrow(k), num_sms);
  return kept != nullptr ? *kept
                         : gemm.architecture->select(narrow(m), narrow(n), narrow(k), num_sms);
}

Result<void> check_created(const GemmKernels* gemm) {
  return gemm != nullptr ? Result<void>()
                         : make_error(ErrorCode::invalid_argument,
                                      "an empty GEMM launcher; expected one that create made");
}

std::size_t gemm_workspace_bytes(const GemmKernels& gemm, std::int64_t m, std::int64_t n,
                                 std::int64_t k) noexcept {
  return m <= 0 || n <= 0 || k <= 0 ? 0 : gemm.architecture->workspace_bytes(m, n, k);
}

}  // namespace

Result<std::shared_ptr<const GemmKernels>> create_gemm(KernelLoader& loader, int device,
                                                       const GemmFamily& family) {
  return guarded([&]() -> Result<std::shared_ptr<const GemmKernels>> {
    CUKILN_TRY(const auto kernels, kernels::DeviceKernels::open(loader, device));
    CUKILN_CHECK(check_hopper_or_later(kernels.info(), family.name));
    const auto gemm = std::make_shared<GemmKernels>();
    gemm->architecture = &architecture_of(family, kernels.info().capability);
    for (std::size_t i = 0; i < gemm->architecture->kernel_count; ++i) {
      const GemmKernel& each = gemm->architecture->kernels[i];
      CUKILN_TRY(const Kernel kernel,
                 kernels.get_unless_sealed(each.module, each.name, each.check, each.shared_bytes));
      gemm->kernels.push_back(kernel);
    }
    if (std::none_of(gemm->kernels.begin(), gemm->kernels.end(),
                     std::mem_fn(&Kernel::operator bool))) {
      const GemmKernel& first = gemm->architecture->kernels[0];
      CUKILN_CHECK(kernels.get(first.module, first.name));
    }
    CUKILN_TRY(gemm->stored,
               load_stored_tactics(loader, kernels.info(), family.name, *gemm->architecture));
    gemm->device = kernels.device();
    return std::shared_ptr<const GemmKernels>(gemm);
  });
}

ModuleNames modules_of(const GemmFamily& family, int capability, std::int64_t max_tokens,
                       std::int64_t n, std::int64_t k) {
  constexpr std::uint32_t kAnySms = 132;  // they change how K is split, and no module
  const GemmArchitecture& gemm = architecture_of(family, capability);
  ModuleNames all;
  for (std::size_t i = 0; i < gemm.kernel_count; ++i) {
    all.insert(gemm.kernels[i].module);
  }
  ModuleNames found;
  for (std::int64_t m = 1; is_shape(m, n, k) && m <= max_tokens && found != all; ++m) {
    for (const GemmTactic& tactic :
         gemm.tactics(static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n),
                      static_cast<std::uint32_t>(k), kAnySms)) {
      found.insert(gemm.kernels[tactic.kernel].module);
    }
  }
  return found;
}

Result<void> launch_gemm(const GemmKernels& gemm, GemmCall call, const MutableMatrixView& output,
                         const Workspace& workspace, const GemmOptions& options) noexcept {
  const std::int64_t m = call.m;
  const std::int64_t n = call.b.rows;
  const std::int64_t k = call.b.columns;
  CUKILN_CHECK(kernels::check_dense_matrix("output", output, DataType::bf16, m, n, 16));
  if (output.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_operand_pointers("b", call.b));
  CUKILN_CHECK(kernels::check_optional_vector("bias", options.bias, DataType::bf16, n, 16));
  CUKILN_CHECK(check_workspace(workspace, gemm_workspace_bytes(gemm, m, n, k), 16));
  CUKILN_TRY(call.tactic, choose_tactic(gemm, m, n, k, options.tactic));
  CUKILN_CHECK(kernels::check_ready(gemm.kernels[call.tactic.kernel], m));
  call.output = output.data_as<std::uint16_t>();
  call.bias = options.bias.data_as<const std::uint16_t>();
  call.n = static_cast<std::uint32_t>(n);
  call.k = static_cast<std::uint32_t>(k);
  call.workspace = workspace.data;
  call.constant_b = options.constant_b;
  return gemm.architecture->launch(gemm.kernels.data(), gemm.device.num_sms, call);
}

}  // namespace detail

std::size_t GemmLauncher::workspace_bytes(std::int64_t m, std::int64_t n,
                                          std::int64_t k) const noexcept {
  return impl_ ? detail::gemm_workspace_bytes(*impl_, m, n, k) : 0;
}

int GemmLauncher::tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return impl_ && detail::is_shape(m, n, k)
             ? static_cast<int>(detail::tactics_of(*impl_, m, n, k).count)
             : 0;
}

Result<GemmTacticName> GemmLauncher::tactic(std::int64_t m, std::int64_t n, std::int64_t k,
                                            int tactic) const {
  return guarded([&]() -> Result<GemmTacticName> {
    CUKILN_CHECK(detail::check_created(impl_.get()));
    if (!detail::is_shape(m, n, k)) {
      return make_error(ErrorCode::invalid_argument,
                        "[m, n, k] is [{}, {}, {}]; expected sizes of 1 to {}", m, n, k, INT32_MAX);
    }
    CUKILN_TRY(const GemmTactic chosen, detail::choose_tactic(*impl_, m, n, k, tactic));
    return GemmTacticName{impl_->architecture->kernels[chosen.kernel].name,
                          static_cast<int>(chosen.splits)};
  });
}

Result<std::vector<MeasuredGemm>> GemmLauncher::load_tactics(Store& store) const {
  return guarded([&]() -> Result<std::vector<MeasuredGemm>> {
    CUKILN_CHECK(detail::check_created(impl_.get()));
    CUKILN_TRY(const auto text, BlobStore(store).get(detail::kTacticsKind, impl_->stored->key));
    if (!text) {
      return std::vector<MeasuredGemm>();
    }
    CUKILN_TRY(auto rows, detail::parse_tactics(*text));
    CUKILN_CHECK(detail::resolve_tactics(rows, *impl_->architecture, impl_->device.num_sms));
    return rows;
  });
}

Result<void> GemmLauncher::save_tactics(Store& store, const std::vector<MeasuredGemm>& rows) const {
  return guarded([&]() -> Result<void> {
    CUKILN_CHECK(detail::check_created(impl_.get()));
    // What is there and cannot be used is replaced.
    std::vector<MeasuredGemm> all = load_tactics(store).value_or(std::vector<MeasuredGemm>());
    const auto is_measured_again = [&](const MeasuredGemm& saved) {
      return std::any_of(rows.begin(), rows.end(), [&](const MeasuredGemm& row) {
        return row.n == saved.n && row.k == saved.k;
      });
    };
    all.erase(std::remove_if(all.begin(), all.end(), is_measured_again), all.end());
    all.insert(all.end(), rows.begin(), rows.end());
    std::sort(all.begin(), all.end(), [](const MeasuredGemm& a, const MeasuredGemm& b) {
      return std::tie(a.n, a.k, a.m) < std::tie(b.n, b.k, b.m);
    });
    CUKILN_CHECK(detail::resolve_tactics(all, *impl_->architecture, impl_->device.num_sms));
    return BlobStore(store).put(detail::kTacticsKind, impl_->stored->key,
                                detail::tactics_text(all));
  });
}

}  // namespace cukiln::nvfp4
