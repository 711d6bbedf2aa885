// The clamped SwiGLU, in float:
//
//   g = min(gate, limit)    u = clamp(up, -limit, limit)    y = g * sigmoid(alpha * g) * (u + beta)
//
// The clamp precedes the sigmoid; y itself is not clamped. limit = inf, alpha = 1, beta = 0 is plain
// SwiGLU. Exponential and reciprocal are the hardware's approximate ones. NaN stays NaN.
//
// Source: vLLM, SiluAndMulWithClamp; Shazeer, GLU Variants Improve Transformer (2020).
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

// Layout of gate and up in one matrix, along a weight's rows or an activation's columns. kHalves: all of
// gate, then all of up. kPairs: they alternate, gate first.
enum GateUpLayout : u32 { kHalves = 0, kPairs = 1 };

struct SwiGlu {
  float limit;
  float exponent_factor;  // -alpha * log2(e)
  float beta;

  static __device__ __forceinline__ SwiGlu of(float limit, float alpha, float beta) {
    return {limit, mul_rn(alpha, -1.44269504088896340736f), beta};
  }

  __device__ __forceinline__ float operator()(float gate, float up) const {
    float u, power, denominator, sigmoid, shifted;
    const float g = min_nan(gate, limit);
    // Clamps to [-limit, limit] in one instruction: the smaller magnitude, with the sign of up (limit > 0).
    asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(u) : "f"(up), "f"(limit));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(mul_rn(exponent_factor, g)));
    asm("add.rn.f32 %0, %1, 0f3F800000;" : "=f"(denominator) : "f"(power));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(denominator));
    asm("add.rn.f32 %0, %1, %2;" : "=f"(shifted) : "f"(u), "f"(beta));
    return mul_rn(mul_rn(g, sigmoid), shifted);
  }
};

}  // namespace nvfp4
}  // namespace cukiln
