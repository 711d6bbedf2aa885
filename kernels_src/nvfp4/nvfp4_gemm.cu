// Product of two NVFP4 matrices with bf16 output.
//
// What: D[i, j] = bf16(alpha * sum over k of a(i, k) * b(j, k) + bias[j]), a and b the codes times
//   their block scales, alpha = a_gsa[1] * b_gsa[1], the decode scales. Products of codes and scales
//   are exact, sums in float.
// Shapes: A [m, k], B [n, k], both as the quantisers write them: codes dense, two a byte, scales in
//   swizzled atoms of 512 bytes, gsa {encode, decode}. bias bf16 [n], or null. D bf16 [m, n], dense.
// Alignment: codes, scales, bias and D 16 bytes.
// Limits: k a multiple of 32, n of 8.
// NaN: a NaN scale makes its row of D (of A) or column (of B) NaN. Padding of scales is 0, as the
//   quantisers write it.
// CUKILN_MACHINE: an emulator of sm_100a, see machine.cuh.
// CUKILN_GEMM_TOKENS: the rows of A that kernels other than sm_100a's are for, 8, 16 or 32 at most; 32
//   sm_90a alone has, and more in nvfp4_gemm_prefill.cu.
// Each architecture has kernels of its own; launch configurations are the launcher's
// (src/kernels/nvfp4/gemm_sm90.cpp, gemm_sm100.cpp): which kernel for which shape, grid, cluster,
// shared memory.
// Source: NVIDIA PTX ISA, mma, wgmma, tcgen05 and cp.async.bulk.
#ifndef CUKILN_GEMM_TOKENS
#define CUKILN_GEMM_TOKENS 8
#endif

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || \
    defined(CUKILN_MACHINE)
#if CUKILN_GEMM_TOKENS == 8  // one module has all of them
#include "gemm_sm100.cuh"
#endif
#else
#include "gemm_sm90.cuh"
#endif
