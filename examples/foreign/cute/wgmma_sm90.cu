// SPDX-License-Identifier: Apache-2.0
// Instantiates the tutorial's launcher, which knows the types of its kernel.
template void gemm_tn(int, int, int, cute::half_t, const cute::half_t*, int, const cute::half_t*, int, cute::half_t,
                      cute::half_t*, int, cudaStream_t);
