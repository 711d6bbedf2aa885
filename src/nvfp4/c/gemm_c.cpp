// SPDX-License-Identifier: Apache-2.0
// The C functions of the GEMMs' launchers, for hosts that measure their tactics.
#include <algorithm>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "bindings/c/last_error.hpp"
#include "bindings/c/structs.hpp"

#include <cukiln/nvfp4/nvfp4.h>
#include <cukiln/extension.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::null_argument;
using c::to_code;

struct cukiln_nvfp4_gemm {  // NOLINT(readability-identifier-naming): C's name
  std::variant<nvfp4::Gemm, nvfp4::W4a16Gemm> launcher;

  /// Calls `f` with the launcher.
  template <class F>
  auto with_launcher(F f) const {
    return std::visit(f, launcher);
  }
};

namespace {

nvfp4::QuantizedMatrix matrix_of(const void* data, const void* scales, const float* global_scale,
                                 std::int64_t rows, std::int64_t columns) {
  return {static_cast<const std::uint8_t*>(data), static_cast<const std::uint8_t*>(scales),
          reinterpret_cast<const nvfp4::GlobalScale*>(global_scale), rows, columns};
}

/// Only A differs.
struct Launch {
  Stream stream;
  const cukiln_nvfp4_gemm_call& call;
  const nvfp4::GemmOptions& options;

  Result<void> operator()(const nvfp4::Gemm& gemm) const {
    return run(gemm, matrix_of(call.a_data, call.a_scales, call.a_global_scale, call.m, call.k));
  }
  Result<void> operator()(const nvfp4::W4a16Gemm& gemm) const {
    return run(gemm, MatrixView(DataType::bf16, call.a_bf16, call.m, call.k));
  }

 private:
  template <class Gemm, class A>
  Result<void> run(const Gemm& gemm, const A& a) const {
    return gemm.launch(stream, {DataType::bf16, call.output, call.m, call.n}, a,
                       matrix_of(call.b_data, call.b_scales, call.b_global_scale, call.n, call.k),
                       {call.workspace, call.workspace_bytes}, options);
  }
};

Result<void> launch(const cukiln_nvfp4_gemm& gemm, const cukiln_nvfp4_gemm_call& given) {
  auto read = c::read_struct(given, "cukiln_nvfp4_gemm_call");
  if (!read) {
    return std::move(read).error();
  }
  nvfp4::GemmOptions options;
  options.constant_b = read->constant_b != 0;
  options.tactic = read->tactic;
  if (read->bias != nullptr) {
    options.bias = {DataType::bf16, read->bias, read->n};
  }
  return gemm.with_launcher(Launch{static_cast<Stream>(read->stream), *read, options});
}

template <class Launcher>
cukiln_code create(cukiln_loader* loader, int device, cukiln_nvfp4_gemm** gemm) {
  return to_code([&]() -> Result<void> {
    if (loader == nullptr || gemm == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "gemm");
    }
    *gemm = nullptr;
    auto made = Launcher::create(extension::loader_of(*loader), device);
    if (!made) {
      return std::move(made).error();
    }
    *gemm = new cukiln_nvfp4_gemm{*std::move(made)};
    return {};
  });
}

nvfp4::MeasuredGemm measured_of(const cukiln_nvfp4_measured_gemm& row) {
  const char* const name = row.tactic.kernel;
  const char* const end = name + sizeof row.tactic.kernel;
  return {row.n,
          row.k,
          row.m,
          {std::string(name, std::find(name, end, '\0')), row.tactic.splits},
          row.nanoseconds};
}

}  // namespace

extern "C" {

cukiln_code cukiln_nvfp4_gemm_create(cukiln_loader* loader, int device, cukiln_nvfp4_gemm** gemm) {
  return create<nvfp4::Gemm>(loader, device, gemm);
}

cukiln_code cukiln_nvfp4_w4a16_gemm_create(cukiln_loader* loader, int device,
                                           cukiln_nvfp4_gemm** gemm) {
  return create<nvfp4::W4a16Gemm>(loader, device, gemm);
}

void cukiln_nvfp4_gemm_destroy(cukiln_nvfp4_gemm* gemm) { delete gemm; }

size_t cukiln_nvfp4_gemm_workspace_bytes(const cukiln_nvfp4_gemm* gemm, int64_t m, int64_t n,
                                         int64_t k) {
  const auto bytes = [=](const auto& launcher) { return launcher.workspace_bytes(m, n, k); };
  return gemm != nullptr ? gemm->with_launcher(bytes) : 0;
}

int cukiln_nvfp4_gemm_tactics(const cukiln_nvfp4_gemm* gemm, int64_t m, int64_t n, int64_t k) {
  const auto count = [=](const auto& launcher) { return launcher.tactics(m, n, k); };
  return gemm != nullptr ? gemm->with_launcher(count) : 0;
}

cukiln_code cukiln_nvfp4_gemm_tactic(const cukiln_nvfp4_gemm* gemm, int64_t m, int64_t n, int64_t k,
                                     int tactic, cukiln_nvfp4_tactic* name) {
  return to_code([&]() -> Result<void> {
    if (gemm == nullptr || name == nullptr) {
      return null_argument(gemm == nullptr ? "gemm" : "name");
    }
    auto found =
        gemm->with_launcher([=](const auto& launcher) { return launcher.tactic(m, n, k, tactic); });
    if (!found) {
      return std::move(found).error();
    }
    *name = {};
    found->kernel.copy(name->kernel, sizeof name->kernel - 1);
    name->splits = found->splits;
    return {};
  });
}

cukiln_code cukiln_nvfp4_gemm_launch(const cukiln_nvfp4_gemm* gemm,
                                     const cukiln_nvfp4_gemm_call* call) {
  return to_code([&]() -> Result<void> {
    if (gemm == nullptr || call == nullptr) {
      return null_argument(gemm == nullptr ? "gemm" : "call");
    }
    return launch(*gemm, *call);
  });
}

cukiln_code cukiln_nvfp4_gemm_save_tactics(const cukiln_nvfp4_gemm* gemm, cukiln_loader* loader,
                                           const cukiln_nvfp4_measured_gemm* rows, size_t count) {
  return to_code([&]() -> Result<void> {
    if (gemm == nullptr || loader == nullptr || (rows == nullptr && count != 0)) {
      return null_argument(gemm == nullptr ? "gemm" : loader == nullptr ? "loader" : "rows");
    }
    std::vector<nvfp4::MeasuredGemm> measured;
    std::transform(rows, rows + count, std::back_inserter(measured), measured_of);
    return gemm->with_launcher([&](const auto& launcher) {
      return launcher.save_tactics(extension::store_of(*loader), measured);
    });
  });
}

}  // extern "C"
