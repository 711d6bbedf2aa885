// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/sampling.hpp>

namespace cukiln::reference {

/// Samples one token for each row of f32 logits, as `sampling::Sampler` defines it and with the
/// same random numbers. Tokens are ordered from the best to the worst. That is the kernel's order
/// if top-k leaves at most 2048; otherwise the kernel's order differs, and a random number picks
/// another token of the same distribution. Views are of host memory; `log_probabilities` may be
/// absent. Arguments are not checked.
void sample(const MutableVectorView& tokens, const MatrixView& logits,
            const sampling::Parameters& parameters, sampling::State& state,
            const MutableVectorView& log_probabilities);

}  // namespace cukiln::reference
