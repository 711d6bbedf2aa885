// SPDX-License-Identifier: Apache-2.0
// The dequantisation of gemm_sm90_dequantize.cuh to bf16 as a host library, which
// dequantize_test.py calls.

#include "device.hpp"  // first

#include <cmath>
#include <cstdlib>

namespace ptx {

inline std::uint32_t prmt_b32(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

inline float bf16_value(std::uint32_t bits) { return f32(bits << 16); }

inline std::uint32_t mul_rn_bf16x2(std::uint32_t a, std::uint32_t b) {
  const auto rounded = [](float exact) -> std::uint32_t {
    const auto bits = std::bit_cast<std::uint32_t>(exact);
    return std::isnan(exact) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  };
  return rounded(bf16_value(a & 0xFFFF) * bf16_value(b & 0xFFFF)) |
         rounded(bf16_value(a >> 16) * bf16_value(b >> 16)) << 16;
}

// Numbers of E4M3 are exact in fp16.
inline std::uint32_t cvt_rn_f16x2_e4m3x2(std::uint16_t bytes) {
  const auto half = [](std::uint32_t byte) -> std::uint32_t {
    const std::uint32_t sign = byte >> 7 << 15;
    const std::uint32_t magnitude = byte & 0x7F;
    if (magnitude == 0x7F) return 0x7FFF;
    if (magnitude >= 8) return sign | (magnitude + (8 << 3)) << 7;
    if (magnitude == 0) return sign;
    const int top = std::bit_width(magnitude) - 1;
    return sign | static_cast<std::uint32_t>(15 - 9 + top) << 10 |
           (magnitude << (10 - top) & 0x3FF);
  };
  return half(bytes & 0xFF) | half(bytes >> 8) << 16;
}

// Of what the function above returns: no subnormal numbers.
inline std::uint32_t cvt_f32_f16(std::uint32_t half) {
  const std::uint32_t magnitude = half & 0x7FFF;
  if (magnitude > 0x7C00) return 0x7FFFFFFF;
  return half >> 15 << 31 | (magnitude == 0 ? 0 : (magnitude << 13) + ((127 - 15) << 23));
}

// Not called for bf16.
template <class... Operands>
std::uint32_t lop3_b32(Operands...) {
  std::abort();
}
template <class... Operands>
std::uint32_t mul_rn_f16x2(Operands...) {
  std::abort();
}
template <class... Operands>
float mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(Operands...) {
  std::abort();
}
template <class... Operands>
float mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(Operands...) {
  std::abort();
}

}  // namespace ptx

#include "gemm_sm90_dequantize.cuh"

using namespace cukiln;

extern "C" {

// Word w of a lane's four, with the two block scales of `bytes`.
void run_dequantize(u32 data, u32 bytes, u32 w, u32* pairs) {
  u32 made[4];
  nvfp4::Bf16::dequantize(data, nvfp4::Bf16::scales(bytes), w, made);
  std::copy_n(made, 4, pairs);
}

// The same with the scales of lane t from the word of its row's four.
void run_lane(u32 data, u32 word, u32 t, u32 w, u32* pairs) {
  u32 made[4];
  const auto scales = nvfp4::Bf16::lane_scales(word, nvfp4::Bf16::selector(t));
  nvfp4::Bf16::dequantize(data, scales, w, made);
  std::copy_n(made, 4, pairs);
}

u32 run_byte(u32 byte, u32 bytes, u32 which) {
  return nvfp4::Bf16::dequantize_byte(byte, nvfp4::Bf16::scales(bytes), which);
}

void run_arrange(const u32* eight, u32* pairs) {
  u32 made[4];
  nvfp4::Bf16::arrange(uint4{eight[0], eight[1], eight[2], eight[3]}, made);
  std::copy_n(made, 4, pairs);
}

}  // extern "C"
