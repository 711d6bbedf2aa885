// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4/sampling.hpp>

namespace cukiln::reference {

/// Samples one token for each row of f32 logits, as `sampling::Sampler` defines it and with the
/// same random numbers. Tokens are ordered from the best to the worst. That is the kernel's order
/// if top-k leaves at most 2048; otherwise the kernel's order differs, and a random number picks
/// another token of the same distribution. Views are of host memory; `log_probabilities` may be
/// absent. Arguments are not checked.
void sample(const MutableVectorView& tokens, const MatrixView& logits,
            const sampling::Parameters& parameters, sampling::State& state,
            const MutableVectorView& log_probabilities);

/// The largest log-probabilities of each row of f32 logits, as `sampling::TopLogProbabilities`
/// defines them. Views are of host memory; `temperature`, and `tokens` with
/// `token_log_probabilities`, may be absent. Arguments are not checked.
void top_log_probabilities(const MutableMatrixView& top_tokens,
                           const MutableMatrixView& top_log_probabilities, const MatrixView& logits,
                           const VectorView& temperature, const VectorView& tokens,
                           const MutableVectorView& token_log_probabilities);

}  // namespace cukiln::reference
