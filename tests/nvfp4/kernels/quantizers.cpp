// SPDX-License-Identifier: Apache-2.0
// The quantisers' device code as a host library, which quantizers_test.py calls.

#include "device.hpp"  // first

#include <cstring>

#include "amax_gsa.cu"
#include "fused_amax_quantize.cu"
#include "quantize_nvfp4.cu"
#include "swiglu_amax_gsa.cu"
#include "swiglu_quantize.cu"

using namespace cukiln;

constexpr unsigned kThreads = 512;

extern "C" {

void run_amax(unsigned grid, float* global_scale, float* row_amax, const u16* input, u32 rows,
              u32 columns, i64 row_stride, u32* workspace, float divisor) {
  device::launch(grid, kThreads, [=] {
    if (row_amax == nullptr) {
      amax_gsa(global_scale, input, rows, columns, row_stride, workspace, divisor);
    } else {
      amax_gsa_by_row(global_scale, row_amax, input, rows, columns, row_stride, workspace, divisor);
    }
  });
}

void run_swiglu_amax(unsigned grid, float* global_scale, const u16* input, u32 rows, u32 columns,
                     i64 row_stride, u32 layout, float limit, float alpha, float beta,
                     u32* workspace, float divisor) {
  device::launch(grid, kThreads, [=] {
    swiglu_amax_gsa(global_scale, input, rows, columns, row_stride, layout, limit, alpha, beta,
                    workspace, divisor);
  });
}

// The last of `grid` thread blocks alone, as if the words of the others had been reset. True if it
// traps.
bool run_amax_without_others(unsigned grid, float* global_scale, const u16* input, u32 columns,
                             u32* workspace) {
  device::launch(grid, kThreads, [=] {
    if (blockIdx.x + 1 == grid) {
      amax_gsa(global_scale, input, 1, columns, columns, workspace, 2688);
    }
  });
  return device::trapped;
}

void run_quantize(unsigned grid, u8* data, u8* scales, const u16* input, const float* global_scale,
                  u32 rows, u32 columns, i64 row_stride) {
  device::launch(grid, kThreads, [=] {
    quantize_nvfp4_from_buffer(data, scales, input, global_scale, rows, columns, row_stride);
  });
}

void run_quantize_static(unsigned grid, u8* data, u8* scales, const u16* input, float encode,
                         u32 rows, u32 columns, i64 row_stride) {
  device::launch(grid, kThreads,
                 [=] { quantize_nvfp4(data, scales, input, encode, rows, columns, row_stride); });
}

void run_deinterleave(unsigned grid, u8* data, u8* scales, const u16* input,
                      const float* global_scale, u32 rows, u32 columns, i64 row_stride) {
  device::launch(grid, kThreads, [=] {
    deinterleave_quantize_from_buffer(data, scales, input, global_scale, rows, columns, row_stride);
  });
}

void run_swiglu_quantize(unsigned grid, u8* data, u8* scales, const u16* input,
                         const float* global_scale, u32 rows, u32 columns, i64 row_stride,
                         u32 layout, float limit, float alpha, float beta) {
  device::launch(grid, kThreads, [=] {
    swiglu_quantize_from_buffer(data, scales, input, global_scale, rows, columns, row_stride,
                                layout, limit, alpha, beta);
  });
}

// Packed E2M1 of `count` bf16 values, a multiple of 8, multiplied by
// `multiplier`.
void run_e2m1(const u16* input, u64 count, float multiplier, u32* data) {
  for (u64 i = 0; i < count; i += 8) {
    u32 pairs[4];
    std::memcpy(pairs, input + i, sizeof pairs);
    data[i / 8] = nvfp4::encode_e2m1x8(pairs, multiplier);
  }
}

#if CUKILN_HOST_ARCH < 1000
// E2M1 encodings of any magnitudes, by the FMA arithmetic that replaces cvt.
void run_e2m1_magnitude(const float* input, u64 count, u8* data) {
  for (u64 i = 0; i < count; ++i) {
    data[i] = static_cast<u8>(nvfp4::biased_e2m1(input[i]) - 0x4B000000u);
  }
}
#endif

void run_encode_ue4m3(const float* input, u64 count, u8* bytes) {
  for (u64 i = 0; i < count; ++i) bytes[i] = static_cast<u8>(nvfp4::encode_ue4m3(input[i]));
}

void run_decode_ue4m3(const u8* bytes, u64 count, float* values) {
  for (u64 i = 0; i < count; ++i) values[i] = nvfp4::decode_ue4m3(bytes[i]);
}
}
