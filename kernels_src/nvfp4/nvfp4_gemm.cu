// nvfp4_gemm: D = A * B^T of two NVFP4 matrices, with bf16 output.
//
// What: D[i, j] = bf16(alpha * sum over k of a(i, k) * b(j, k) + bias[j]); a and b are E2M1 values times
//   their block scales, alpha the product of both decode scales. Each product a * b is exact; sums are in
//   float.
// Shapes: A [m, k], B [n, k], as the quantisers write them: packed E2M1 data, dense; block scales in
//   swizzled atoms (scale_layout.cuh); global scales {encode, decode}. bias bf16 [n], or null. D bf16
//   [m, n], dense.
// Alignment: data, scales, bias and D 16 bytes.
// Limits: k a multiple of 32, n of 8.
// NaN: a NaN scale makes its row of D (of A) or column (of B) NaN. Padding of scales is 0, as the
//   quantisers write it.
// CUKILN_MACHINE: the CPU emulator of sm_100a, see machine.cuh.
// CUKILN_GEMM_TOKENS: the largest m, 8, 16 or 32, of the kernels for targets without tcgen05's
//   block-scaled MMA. Those for 32 exist for sm_90a only; for larger m it has nvfp4_gemm_prefill.cu. With
//   that MMA: 8 is the kernels whose rows are A's, 16 those with swapped operands.
// Launch: which kernel for which shape, grid, cluster and shared memory: the launchers
//   src/nvfp4/host/gemm_sm90.cpp and gemm_sm100.cpp.
// Source: NVIDIA PTX ISA, mma, wgmma, tcgen05 and cp.async.bulk.
#ifndef CUKILN_GEMM_TOKENS
#define CUKILN_GEMM_TOKENS 8
#endif

#include "block_scaled_mma.cuh"

#ifdef CUKILN_BLOCK_SCALED_MMA
#if CUKILN_GEMM_TOKENS != 32  // 16: those with swapped operands
#include "gemm_sm100.cuh"
#endif
#else
#include "gemm_sm90.cuh"
#endif
