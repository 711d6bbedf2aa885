// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "kernels/device_kernels.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"
#include "kernels/nvfp4/sm90_plan.hpp"
#include "kernels/nvfp4/stored_tactics.hpp"

#include <cukiln/blob_store.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;

// The last one is for every device that has no kernels of its own.
constexpr const detail::GemmArchitecture* kArchitectures[] = {
    &detail::kGemmSm90, &detail::kGemmSm100, &detail::kGemmAny};

const detail::GemmArchitecture& architecture_of(int capability) noexcept {
  for (const detail::GemmArchitecture* architecture : kArchitectures) {
    if (architecture->runs_on(capability)) {
      return *architecture;
    }
  }
  return detail::kGemmAny;
}

Result<void> check_operands(const MutableMatrixView& output, const QuantizedMatrix& a,
                            const QuantizedMatrix& b, const GemmOptions& options) noexcept {
  CUKILN_CHECK(kernels::check_dense_matrix("output", output, DataType::bf16, a.rows, b.rows, 16));
  CUKILN_CHECK(detail::check_operand_pointers("a", a));
  CUKILN_CHECK(detail::check_operand_pointers("b", b));
  return kernels::check_optional_vector("bias", options.bias, DataType::bf16, b.rows, 16);
}

// Sizes that `launch` accepts.
bool is_shape(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  return m > 0 && n > 0 && k > 0 && m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX;
}

detail::GemmTactics tactics_of(const detail::GemmArchitecture& architecture, std::int64_t m,
                               std::int64_t n, std::int64_t k, std::uint32_t num_sms) noexcept {
  return architecture.tactics(static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n),
                              static_cast<std::uint32_t>(k), num_sms);
}

/// The choice of GemmOptions::tactic. Errors: invalid_argument (there is no such tactic).
Result<GemmTactic> choose_tactic(const detail::GemmArchitecture& architecture,
                                 const detail::StoredTactics& stored, std::int64_t m,
                                 std::int64_t n, std::int64_t k, std::uint32_t num_sms,
                                 int tactic) noexcept {
  if (tactic >= 0) {
    const detail::GemmTactics all = tactics_of(architecture, m, n, k, num_sms);
    if (static_cast<std::size_t>(tactic) < all.count) {
      return all.all[tactic];
    }
    return kernels::refuse(
               "tactic is {}; [{}, {}, {}] has {}, counted from 0, and -1 selects the one expected "
               "to be fastest",
               tactic, m, n, k, all.count)
        .error();
  }
  const auto narrow = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const GemmTactic* const kept = stored.table().find(narrow(m), narrow(n), narrow(k), num_sms);
  return kept != nullptr ? *kept : architecture.select(narrow(m), narrow(n), narrow(k), num_sms);
}

}  // namespace

Result<Gemm> Gemm::create(KernelLoader& loader, int device) {
  static_assert(sm90::kKernelCount <= kMaxKernels && kSm100PlainCount <= kMaxKernels);
  return guarded([&]() -> Result<Gemm> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    CUKILN_CHECK(detail::check_hopper_or_later(kernels.info(), "nvfp4_gemm"));
    Gemm made;
    made.architecture_ = &architecture_of(kernels.info().capability);
    for (std::size_t i = 0; i < made.architecture_->kernel_count; ++i) {
      const detail::GemmKernel& wanted = made.architecture_->kernels[i];
      CUKILN_TRY(made.kernels_[i], kernels.get(wanted.module, wanted.name));
      CUKILN_CHECK(wanted.check(made.kernels_[i]));
      CUKILN_CHECK(made.kernels_[i].reserve_shared(wanted.shared_bytes));
    }
    CUKILN_TRY(made.stored_,
               detail::load_tactics(loader, kernels.info(), "nvfp4_gemm", *made.architecture_));
    made.device_ = kernels.device();
    return made;
  });
}

std::size_t Gemm::workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return architecture_ == nullptr || m <= 0 || n <= 0 || k <= 0
             ? 0
             : architecture_->workspace_bytes(m, n, k);
}

int Gemm::tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return architecture_ == nullptr || !is_shape(m, n, k)
             ? 0
             : static_cast<int>(tactics_of(*architecture_, m, n, k, device_.num_sms).count);
}

Result<GemmTacticName> Gemm::tactic(std::int64_t m, std::int64_t n, std::int64_t k,
                                    int tactic) const {
  return guarded([&]() -> Result<GemmTacticName> {
    if (architecture_ == nullptr || !is_shape(m, n, k)) {
      return make_error(ErrorCode::invalid_argument,
                        "[m, n, k] is [{}, {}, {}]{}; sizes of 1 to {} are expected", m, n, k,
                        architecture_ == nullptr ? " of an empty Gemm" : "", INT32_MAX);
    }
    CUKILN_TRY(const GemmTactic chosen,
               choose_tactic(*architecture_, *stored_, m, n, k, device_.num_sms, tactic));
    return GemmTacticName{architecture_->kernels[chosen.tile].name,
                          static_cast<int>(chosen.splits)};
  });
}

Result<std::vector<MeasuredGemm>> Gemm::kept_tactics(Store& store) const {
  return guarded([&]() -> Result<std::vector<MeasuredGemm>> {
    if (architecture_ == nullptr) {
      return make_error(ErrorCode::invalid_argument, "an empty Gemm: make it with Gemm::create");
    }
    CUKILN_TRY(const auto text, BlobStore(store).get(detail::kTacticsKind, stored_->key));
    if (!text) {
      return std::vector<MeasuredGemm>();
    }
    CUKILN_TRY(auto rows, detail::parse_tactics(*text));
    CUKILN_CHECK(detail::resolve_tactics(rows, *architecture_, device_.num_sms));
    return rows;
  });
}

Result<void> Gemm::keep_tactics(Store& store, const std::vector<MeasuredGemm>& rows) const {
  return guarded([&]() -> Result<void> {
    if (architecture_ == nullptr) {
      return make_error(ErrorCode::invalid_argument, "an empty Gemm: make it with Gemm::create");
    }
    // What is there and cannot be used is replaced.
    std::vector<MeasuredGemm> all = kept_tactics(store).value_or(std::vector<MeasuredGemm>());
    const auto is_measured_again = [&](const MeasuredGemm& kept) {
      return std::any_of(rows.begin(), rows.end(), [&](const MeasuredGemm& row) {
        return row.n == kept.n && row.k == kept.k;
      });
    };
    all.erase(std::remove_if(all.begin(), all.end(), is_measured_again), all.end());
    all.insert(all.end(), rows.begin(), rows.end());
    std::sort(all.begin(), all.end(), [](const MeasuredGemm& a, const MeasuredGemm& b) {
      return std::tie(a.n, a.k, a.m) < std::tie(b.n, b.k, b.m);
    });
    CUKILN_CHECK(detail::resolve_tactics(all, *architecture_, device_.num_sms));
    return BlobStore(store).put(detail::kTacticsKind, stored_->key, detail::tactics_text(all));
  });
}

Result<void> Gemm::launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                          const QuantizedMatrix& b, const Workspace& workspace,
                          const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Gemm", device_));
  CUKILN_CHECK(detail::check_gemm_sizes(output, a, b));
  if (b.rows % 8 != 0) {
    return kernels::refuse("b is [{}, {}]; a multiple of 8 rows is expected", b.rows, b.columns);
  }
  if (output.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_operands(output, a, b, options));
  CUKILN_CHECK(check_workspace(workspace, workspace_bytes(a.rows, b.rows, a.columns), 16));
  CUKILN_TRY(const GemmTactic tactic, choose_tactic(*architecture_, *stored_, a.rows, b.rows,
                                                    a.columns, device_.num_sms, options.tactic));
  return architecture_->launch(
      kernels_, device_.num_sms,
      {stream, output.data_as<std::uint16_t>(), a, b, options.bias.data_as<const std::uint16_t>(),
       static_cast<std::uint32_t>(a.rows), static_cast<std::uint32_t>(b.rows),
       static_cast<std::uint32_t>(a.columns), workspace.data, options.constant_b, tactic});
}

}  // namespace cukiln::nvfp4
