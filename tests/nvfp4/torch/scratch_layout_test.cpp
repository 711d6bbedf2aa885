// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/scratch_layout.hpp"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "nvfp4/host/gemm_architecture.hpp"
#include "nvfp4/host/moe_plan.hpp"

namespace cukiln::torch {
namespace {

constexpr double kGiB = 1 << 30;

LinearScratch scratch_of(const nvfp4::detail::GemmArchitecture& gemm, std::int64_t tokens,
                         std::int64_t out_features, std::int64_t in_features) {
  return linear_scratch(tokens, in_features,
                        gemm.workspace_bytes(tokens, out_features, in_features));
}

}  // namespace

TEST_CASE("the parts of a linear layer's scratch lie one after the other") {
  for (const std::int64_t tokens : {1, 33, 300}) {
    const LinearScratch layout = scratch_of(nvfp4::detail::kGemmSm90, tokens, 48, 96);
    CHECK(layout.workspace >= sizeof(nvfp4::GlobalScale));
    CHECK(layout.workspace_bytes == (tokens > 32 ? static_cast<std::size_t>(tokens) * 256 : 0));
    CHECK(layout.data >= layout.workspace + layout.workspace_bytes);
    CHECK(layout.scales >= layout.data + nvfp4::data_bytes(tokens, 96));
    CHECK(layout.end >= layout.scales + nvfp4::scales_bytes(tokens, 96));
    for (const std::size_t offset : {layout.workspace, layout.data, layout.scales}) {
      CHECK(offset % 256 == 0);
    }
  }
}

TEST_CASE("fewer tokens of a linear layer need no more scratch") {
  for (const auto* gemm :
       {&nvfp4::detail::kGemmSm90, &nvfp4::detail::kGemmSm100, &nvfp4::detail::kGemmAny}) {
    for (const std::int64_t features : {32, 4096, 14336}) {
      std::size_t most = 0;
      for (std::int64_t tokens = 1; tokens <= 8192; ++tokens) {
        const std::size_t bytes = scratch_of(*gemm, tokens, 4096, features).end;
        REQUIRE(bytes >= most);
        most = bytes;
      }
    }
  }
}

TEST_CASE("32 layers of Llama-3-8B's shape and 8192 tokens keep 0.6 GiB of scratch at most") {
  // [out, in] of q, k and v; o; gate and up; down.
  constexpr std::int64_t kShapes[][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
  double each_its_own = 0;
  std::set<std::size_t> sizes;  // a block is used again by all who need as much
  for (int layer = 0; layer < 32; ++layer) {
    for (const auto& [out_features, in_features] : kShapes) {
      const std::size_t bytes =
          scratch_of(nvfp4::detail::kGemmSm90, 8192, out_features, in_features).end;
      each_its_own += static_cast<double>(bytes);
      sizes.insert(bytes);
    }
  }
  double kept = 0;
  for (const std::size_t bytes : sizes) {
    kept += static_cast<double>(bytes);
  }
  CHECK(each_its_own > 16 * kGiB);
  CHECK(static_cast<double>(*sizes.rbegin()) < 0.3 * kGiB);
  CHECK(kept < 0.4 * kGiB);
}

TEST_CASE("layers of DeepSeek-V3's shape and 4096 tokens take turns in 1 GiB of scratch") {
  // 58 of them, each with its own, would take 54.
  const std::size_t bytes =
      nvfp4::moe_max_bytes({4096, 8, 256, 7168, 2048, 256}, nvfp4::MoeKernels::warpgroups, 132);
  CHECK(static_cast<double>(bytes) < 1.0 * kGiB);
  CHECK(58 * static_cast<double>(bytes) > 50 * kGiB);
}

}  // namespace cukiln::torch
