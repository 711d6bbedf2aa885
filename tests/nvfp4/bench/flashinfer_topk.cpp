// SPDX-License-Identifier: Apache-2.0
// The module `topk` of FlashInfer as far as its sampling calls it: the radix top-k. CUB's part of
// it takes a quarter of an hour to compile, and serves no call for sorted results, as these are.

#include "tvm_ffi_utils.h"

using tvm::ffi::Optional;

void radix_topk(TensorView input, TensorView output_indices, Optional<TensorView> output_values,
                Optional<TensorView> row_states, int64_t top_k, bool sorted, bool deterministic,
                int64_t tie_break, bool graph_safe);

TVM_FFI_DLL_EXPORT_TYPED_FUNC(radix_topk, radix_topk);
