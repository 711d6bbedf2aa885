// SPDX-License-Identifier: Apache-2.0
// The sampling kernels' device code as a host library, which sampling_test.py calls.

#include "sampling_device.hpp"  // first

#include "sampler.cu"
#include "top_log_probabilities.cu"

using namespace cukiln::sampling;

extern char __start_shared_memory[], __stop_shared_memory[];  // NOLINT: the linker's

namespace {

// Shared memory begins as bytes that are no sensible number.
void launch(u32 rows, const std::function<void()>& kernel) {
  device::shared_variables = __start_shared_memory;
  device::shared_memory.assign(
      static_cast<std::size_t>(__stop_shared_memory - __start_shared_memory), '\xEE');
  device::launch(Index{rows * kClusterBlocks, 1}, kThreads, kernel, kClusterBlocks);
}

}  // namespace

extern "C" {

void run_sampler(u32 rows, int* tokens, float* log_probabilities, const Logit* logits,
                 u32 vocabulary, i64 row_stride, const float* temperature, const int* top_k,
                 const float* top_p, const float* min_p, u32 order, PhiloxState* state,
                 PhiloxSeed* row_seeds) {
  launch(rows, [=] {
    sampler(tokens, log_probabilities, logits, vocabulary, row_stride, temperature, top_k, top_p,
            min_p, order, state, row_seeds);
  });
}

void run_top_log_probabilities(u32 rows, int* top_tokens, float* top, float* of_tokens,
                               const Logit* logits, u32 vocabulary, i64 row_stride, u32 count,
                               const float* temperature, const int* tokens) {
  launch(rows, [=] {
    top_log_probabilities(top_tokens, top, of_tokens, logits, vocabulary, row_stride, count,
                          temperature, tokens);
  });
}
}
