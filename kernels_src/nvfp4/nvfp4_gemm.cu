// nvfp4_gemm: D = bf16(A . B^T * alpha + bias) of two NVFP4 matrices.
#include "gemm_sm100.cuh"
