// Turns an accumulator into an element of the result: times the decode scales and what undoes the dequantisation's
// factors. A mixture of experts rounds after each multiplication; the compiler may fuse the last with the bias, which is
// added to it.
#pragma once

#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

// alpha of a GEMM. `a` is the decode scale of NVFP4 tokens (F16), 1 for bf16.
template <class Operand>
struct GemmAlpha {
  float a;
  float b;

  __device__ __forceinline__ float operator()(float sum) const {
    return kIsSame<Operand, F16> ? sum * a * b : sum * b;
  }
};

// What stands for a bias where there is none: -0, which changes no sum, not even its sign. Two in bf16.
constexpr u32 kNoBias = 0x80008000u;

// alpha of a mixture of experts with NVFP4 tokens, which have one global scale or, where that is null, one for
// each row.
struct Nvfp4Alpha {
  float token_scale;
  float weight_scale;

  __device__ __forceinline__ Nvfp4Alpha(const float* token_global_scale, float weight_decode)
      : token_scale(token_global_scale != nullptr ? token_global_scale[kDecode] * kTwoTo14 : 0.0f),
        weight_scale(weight_decode * F16::kWeightFactor) {}

  // Returns alpha of a row of tokens. `row_decode`: decode scales of all rows, or null.
  __device__ __forceinline__ Nvfp4Alpha of_row(const float* row_decode, u32 row) const {
    Nvfp4Alpha alpha = *this;
    if (row_decode != nullptr) alpha.token_scale = row_decode[row] * kTwoTo14;
    return alpha;
  }
  __device__ __forceinline__ float operator()(float sum, float bias) const {
    return mul_rn(sum, token_scale) * weight_scale + bias;
  }
};

// alpha of a mixture of experts with bf16 tokens.
struct Bf16Alpha {
  float weight_scale;

  __device__ __forceinline__ explicit Bf16Alpha(float weight_decode)
      : weight_scale(weight_decode * Bf16::kWeightFactor) {}
  __device__ __forceinline__ float operator()(float sum, float bias) const {
    return sum * weight_scale + bias;
  }
};

}  // namespace nvfp4
}  // namespace cukiln
