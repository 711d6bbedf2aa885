// SPDX-License-Identifier: Apache-2.0
// What launchers promise hosts that were compiled with an earlier version of the library.
#include <memory>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/nvfp4/sampling.hpp>

namespace cukiln {
namespace {

template <class Launcher>
constexpr bool kIsOnePointer =
    sizeof(Launcher) == sizeof(std::shared_ptr<const void>) &&
    std::is_nothrow_move_constructible_v<Launcher> && std::is_copy_assignable_v<Launcher>;

static_assert(kIsOnePointer<nvfp4::ComputeGlobalScale> && kIsOnePointer<nvfp4::Quantize> &&
              kIsOnePointer<nvfp4::QuantizeStatic> && kIsOnePointer<nvfp4::DeinterleaveQuantize> &&
              kIsOnePointer<nvfp4::ComputeSwiGluGlobalScale> && kIsOnePointer<nvfp4::Gemm> &&
              kIsOnePointer<nvfp4::W4a16Gemm> && kIsOnePointer<nvfp4::GroupedGemm> &&
              kIsOnePointer<nvfp4::MoeGemm> && kIsOnePointer<sampling::Sampler> &&
              kIsOnePointer<sampling::TopLogProbabilities>);

std::string message_of(const Result<void>& result) {
  return result ? std::string() : result.error().message();
}

}  // namespace

TEST_CASE("fault 416: a launcher that was not created refuses, and needs no workspace") {
  CHECK(message_of(nvfp4::ComputeGlobalScale().launch({}, {}, {}, {})) ==
        "an empty ComputeGlobalScale; expected one that ComputeGlobalScale::create made");
  CHECK(!nvfp4::ComputeGlobalScale().launch_by_row({}, {}, {}, {}, {}));
  CHECK(!nvfp4::Quantize().launch({}, {}, {}));
  CHECK(!nvfp4::QuantizeStatic().launch({}, {}, {}, 1.0f));
  CHECK(!nvfp4::DeinterleaveQuantize().launch({}, {}, {}, nvfp4::GateUpLayout::halves));
  CHECK(!nvfp4::DeinterleaveQuantize().launch_swiglu({}, {}, {}, nvfp4::GateUpLayout::halves, {}));
  CHECK(!nvfp4::ComputeSwiGluGlobalScale().launch({}, {}, {}, nvfp4::GateUpLayout::halves, {}, {}));
  CHECK(!nvfp4::GroupedGemm().launch({}, {}, {}, {}, {}));
  CHECK(!nvfp4::MoeGemm().launch({}, {}, {}, {}, {}));
  CHECK(!sampling::Sampler().launch({}, {}, {}, {}, nullptr));
  CHECK(!sampling::TopLogProbabilities().launch({}, {}, {}, {}));
  CHECK(!nvfp4::W4a16Gemm().launch({}, {}, MatrixView(), {}, {}));

  const nvfp4::Gemm gemm;
  CHECK(message_of(gemm.launch({}, {}, nvfp4::QuantizedMatrix(), {}, {})) ==
        "an empty Gemm; expected one that Gemm::create made");
  CHECK(!gemm.tactic(8, 64, 64));
  CHECK(gemm.tactics(8, 64, 64) == 0);
  CHECK(gemm.workspace_bytes(8, 64, 64) == 0);
  CHECK(nvfp4::ComputeGlobalScale().workspace_bytes() == 0);
  CHECK(nvfp4::ComputeSwiGluGlobalScale().workspace_bytes() == 0);
  CHECK(nvfp4::MoeGemm().workspace_bytes({1, 1, 1, 32, 32}) == 0);
  CHECK(nvfp4::MoeGemm().max_workspace_bytes({1, 1, 1, 32, 32}) == 0);
}

}  // namespace cukiln
