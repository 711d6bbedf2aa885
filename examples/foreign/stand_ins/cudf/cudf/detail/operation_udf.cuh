// SPDX-License-Identifier: Apache-2.0
// The user's function. libcudf writes this as text.
__device__ inline void GENERIC_TRANSFORM_OP(int64_t* out, int32_t a, int32_t b) {
  *out = static_cast<int64_t>(a) * b + 1;
}
