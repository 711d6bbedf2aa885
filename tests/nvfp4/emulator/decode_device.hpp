// SPDX-License-Identifier: Apache-2.0
#pragma once

// The decode GEMMs as decode_test.py translates them. What they include has names that the public
// headers have too: hence a file of their own.

#include "emulator/emulator.hpp"

namespace cukiln::emulator {

struct DecodeArguments {
  u16* output;
  const void* tokens;  // NVFP4's data, or bf16
  const TensorMap* weight_map;
  const u8* token_scales;
  const u8* row_scales;
  const float* a_global_scale;
  const float* b_global_scale;
  const u16* bias;
  u32 m, n, k;
  bool constant_b;
};

struct DecodeKernel {
  bool is_w4a4;
  u32 tokens;  // of a thread block
  u32 rows;
  u32 box_bytes;
  u32 threads;
  u32 shared_bytes;
  void (*run)(const DecodeArguments& of);
};
extern const DecodeKernel kDecodeKernels[3];  // W4A16 for 8 and 16 tokens, W4A4 for 8

}  // namespace cukiln::emulator
