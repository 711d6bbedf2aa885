// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/sampling.hpp>

namespace cukiln::reference {

/// Samples one token for each row of float logits [rows, vocabulary], as `sampling::Sampler`
/// defines it and with the same random numbers. Tokens are ordered from the best to the worst. That
/// is the kernel's order if a filter leaves at most 2048; otherwise the kernel's order differs, and
/// a random number picks another token of the same distribution. Pointers are the host's.
/// `log_probabilities` may be null.
void sample(std::int32_t* tokens, const float* logits, std::int64_t rows, std::int64_t vocabulary,
            std::int64_t row_stride, const sampling::Parameters& parameters, sampling::State& state,
            float* log_probabilities);

}  // namespace cukiln::reference
