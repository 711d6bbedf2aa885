// SPDX-License-Identifier: Apache-2.0
#include "emulator/decode_device.hpp"  // first

#include <array>

#include "emulator/async_copy.hpp"
#include "kernels/ptx_mma.hpp"
#include "kernels_src/nvfp4/gemm_sm90_decode.cuh"  // translated

namespace ptx {

const MmaOperands* exchange_operands(const MmaOperands& own) {
  static std::array<std::array<MmaOperands, 1024>, 2> given;  // of each thread
  static std::array<unsigned, 1024> count;
  auto& now = given[count[threadIdx.x]++ % 2];
  now[threadIdx.x] = own;
  __syncwarp();
  return &now[threadIdx.x / 32 * 32];
}

}  // namespace ptx

namespace cukiln::emulator {
namespace {

template <class Gemm>
constexpr DecodeKernel kernel_of(u32 tokens) {
  return {Gemm::kQuantizedTokens,
          tokens,
          Gemm::kRows,
          Gemm::kBoxBytes,
          Gemm::kThreads,
          Gemm::kSharedBytes,
          [](const DecodeArguments& of) {
            Gemm::run({of.output, static_cast<const u8*>(of.tokens), of.weight_map, of.token_scales,
                       of.row_scales, of.a_global_scale, of.b_global_scale, of.bias, of.m, of.n,
                       of.k, of.constant_b, of.k});
          }};
}

}  // namespace

const DecodeKernel kDecodeKernels[3] = {
    kernel_of<nvfp4::DecodeGemm<8, 2, 2, nvfp4::Bf16>>(8),
    kernel_of<nvfp4::DecodeGemm<16, 2, 2, nvfp4::Bf16>>(16),
    kernel_of<nvfp4::DecodeGemm<8, 2, 2, nvfp4::F16>>(8),
};

}  // namespace cukiln::emulator
