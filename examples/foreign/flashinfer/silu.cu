// SPDX-License-Identifier: Apache-2.0
// FlashInfer's host writes the activation function as text before it includes this header.
#include <flashinfer/activation.cuh>

__device__ float silu(const float& x) { return x / (1.0f + __expf(-x)); }
