// A few tokens: every weight is read once, and reading and dequantising it is all that takes time.
//
// The tokens are the matrix instruction's 16 rows and the weights its 8 columns. A thread block takes
// kUnits times 8 rows of B and all of K, so that nothing is shared between blocks; its warps take
// groups of 128 of K in turn, each for all rows, and meet once, at the end, to add their sums in a
// fixed order. A warp loads codes and scales straight to registers, a group ahead of their use.
//
// The 8 rows of a unit are r, r + 1 and those 32, 64 and 96 further: the rows whose block scales lie
// together in an atom.
#pragma once

#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

struct GemmOperand {
  const u8* codes;
  const u8* scales;
  const float* gsa;
};

__device__ __forceinline__ uint4 load_codes(const u8* from, bool wanted) {
  uint4 value;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.u32 p, %5, 0;\n\t"
      "mov.b32 %0, 0;\n\tmov.b32 %1, 0;\n\tmov.b32 %2, 0;\n\tmov.b32 %3, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n\t"
      "}"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(from), "r"(static_cast<u32>(wanted)));
  return value;
}

__device__ __forceinline__ u32 load_scales(const u8* from, bool wanted) {
  u32 value;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.u32 p, %2, 0;\n\t"
      "mov.b32 %0, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];\n\t"
      "}"
      : "=r"(value)
      : "l"(from), "r"(static_cast<u32>(wanted)));
  return value;
}

template <u32 kTokens, u32 kUnits, u32 kWarps>
struct DecodeGemm {
  static_assert(kTokens == 8 || kTokens == 16, "rows of one matrix instruction");
  static constexpr u32 kThreads = 32 * kWarps;
  static constexpr u32 kRows = 8 * kUnits;
  static constexpr u32 kSharedBytes = kWarps * kTokens * kRows * 4;
  static constexpr u32 kHalves = kTokens / 8;

  static __device__ __forceinline__ u32 word_of(const uint4& v, u32 i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
  // Of unit `unit`, the row of B that column `n` of the matrix instruction is.
  static __device__ __forceinline__ u32 row_of(u32 unit, u32 n) {
    return unit / 16 * kAtomRows + unit % 16 * 2 + n % 2 + n / 2 * 32;
  }

  static __device__ __forceinline__ void run(u16* output, const GemmOperand& a, const GemmOperand& b,
                                             const u16* bias, u32 tokens, u32 rows, u32 columns) {
    extern __shared__ float partial[];
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 warp = threadIdx.x >> 5;
    const u32 first_unit = blockIdx.x * kUnits;
    const u32 first_token = blockIdx.y * kTokens;
    const u32 row_bytes = columns / 2;
    const u32 k_atoms = (columns + 63) / 64;
    const u32 groups = (columns + kGroupK - 1) / kGroupK;
    const u32 last_unit = (rows + kAtomRows - 1) / kAtomRows * 16 - 1;
    const u32 selector = lane_scale_selector(t);
    const float alpha_a = __ldg(a.gsa + 1) * kTwoTo14;
    const float alpha_b = __ldg(b.gsa + 1) * kTwoTo14;

    const u32 first_atom = first_unit / 16;
    const u8* const block_codes = b.codes + static_cast<u64>(first_atom) * kAtomRows * row_bytes;
    const u8* const block_scales = b.scales + static_cast<u64>(first_atom) * k_atoms * kAtomBytes;
    u32 unit_codes[kUnits];  // offsets; beyond B: some row of it, not stored
    u32 unit_scales[kUnits];
#pragma unroll
    for (u32 u = 0; u < kUnits; ++u) {
      const u32 unit = min(first_unit + u, last_unit);
      unit_codes[u] = (min(row_of(unit, g), rows - 1) - first_atom * kAtomRows) * row_bytes;
      unit_scales[u] = (unit / 16 - first_atom) * k_atoms * kAtomBytes +
                       (unit % 16 * 2 + g % 2) * 16 + g / 2 * 4;
    }
    const u8* token_codes[kHalves];
    const u8* token_scales[kHalves];
#pragma unroll
    for (u32 h = 0; h < kHalves; ++h) {
      const u32 token = min(first_token + h * 8 + g, tokens - 1);
      token_codes[h] = a.codes + static_cast<u64>(token) * row_bytes;
      token_scales[h] = a.scales + static_cast<u64>(token / kAtomRows) * k_atoms * kAtomBytes +
                        token % 32 * 16 + token / 32 % 4 * 4;
    }

    uint4 codes[kUnits];
    u32 scales[kUnits];
    uint4 codes_t[kHalves];
    u32 scales_t[kHalves];
    float sum[kUnits][4] = {};

    u32 code_offset = warp * 64 + t * kLaneBytes;
    u32 scale_offset = (warp * 2 + t / 2) * kAtomBytes;
    bool inside = code_offset < row_bytes;
#pragma unroll
    for (u32 h = 0; h < kHalves; ++h) {
      codes_t[h] = load_codes(token_codes[h] + code_offset, inside);
      scales_t[h] = load_scales(token_scales[h] + scale_offset, inside);
    }
#pragma unroll
    for (u32 u = 0; u < kUnits; ++u) {
      codes[u] = load_codes(block_codes + (unit_codes[u] + code_offset), inside);
      scales[u] = load_scales(block_scales + (unit_scales[u] + scale_offset), inside);
    }

    for (u32 group = warp; group < groups; group += kWarps) {
      code_offset += kWarps * 64;
      scale_offset += kWarps * 2 * kAtomBytes;
      inside = code_offset < row_bytes;
      u32 operand[8][4];  // the tokens of this group, an instruction after the other
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        u32 lane_scale[2];
        if (h < kHalves) lane_scales(scales_t[h % kHalves], selector, lane_scale);
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          u32 pairs[4] = {0, 0, 0, 0};
          if (h < kHalves) {
            expand(word_of(codes_t[h % kHalves], w), pairs);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) pairs[j] = multiply_f16x2(pairs[j], lane_scale[w / 2]);
          }
#pragma unroll
          for (u32 j = 0; j < 4; ++j) operand[2 * w + j / 2][j % 2 * 2 + h] = pairs[j];
        }
        if (h < kHalves) {
          codes_t[h % kHalves] = load_codes(token_codes[h % kHalves] + code_offset, inside);
          scales_t[h % kHalves] = load_scales(token_scales[h % kHalves] + scale_offset, inside);
        }
      }
#pragma unroll
      for (u32 u = 0; u < kUnits; ++u) {
        u32 lane_scale[2];
        lane_scales(scales[u], selector, lane_scale);
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          u32 pairs[4];
          expand(word_of(codes[u], w), pairs);
#pragma unroll
          for (u32 j = 0; j < 4; ++j) pairs[j] = multiply_f16x2(pairs[j], lane_scale[w / 2]);
          multiply_16x8x16(sum[u], operand[2 * w], pairs[0], pairs[1]);
          multiply_16x8x16(sum[u], operand[2 * w + 1], pairs[2], pairs[3]);
        }
        codes[u] = load_codes(block_codes + (unit_codes[u] + code_offset), inside);
        scales[u] = load_scales(block_scales + (unit_scales[u] + scale_offset), inside);
      }
    }

#pragma unroll
    for (u32 u = 0; u < kUnits; ++u) {
#pragma unroll
      for (u32 h = 0; h < kHalves; ++h) {
        float2* const at = reinterpret_cast<float2*>(
            partial + (warp * kTokens + h * 8 + g) * kRows + u * 8 + t * 2);
        *at = {sum[u][2 * h], sum[u][2 * h + 1]};
      }
    }
    __syncthreads();
    // Two rows of one token a thread; neighbours in memory are neighbours here.
    for (u32 i = threadIdx.x; i < kTokens * kRows / 2; i += kThreads) {
      const u32 u = i % kUnits;
      const u32 pair = i / kUnits % 4;
      const u32 token = i / (4 * kUnits);
      const float2* const from =
          reinterpret_cast<const float2*>(partial + token * kRows + u * 8 + pair * 2);
      float2 total = *from;
#pragma unroll
      for (u32 w = 1; w < kWarps; ++w) {
        const float2 more = from[w * kTokens * kRows / 2];
        total.x += more.x;
        total.y += more.y;
      }
      const u32 row = row_of(first_unit + u, pair * 2);
      if (first_token + token >= tokens || first_unit + u > last_unit || row >= rows) continue;
      total.x = total.x * alpha_a * alpha_b;
      total.y = total.y * alpha_a * alpha_b;
      if (bias != nullptr) {
        const u32 add = __ldg(reinterpret_cast<const u32*>(bias + row));
        total.x += __uint_as_float(add << 16);
        total.y += __uint_as_float(add & 0xFFFF0000u);
      }
      *reinterpret_cast<u32*>(output + static_cast<u64>(first_token + token) * rows + row) =
          pack_bf16x2(total.x, total.y);
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
