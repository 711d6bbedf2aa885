// SPDX-License-Identifier: Apache-2.0
// Instantiates the tutorial's launcher, which knows the types of its kernel.
using RowMajor = cute::Layout<cute::Shape<int, int>, cute::Stride<int, cute::Int<1>>>;
template void gemm_host_f16xf16_f32_f32_tnt(const cute::half_t*, RowMajor, const cute::half_t*, RowMajor, const float*,
                                            RowMajor, float*, RowMajor, float, float);
