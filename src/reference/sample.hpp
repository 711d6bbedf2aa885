// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/sampling.hpp>

namespace cukiln::reference {

/// One token for each row of float logits [rows, vocabulary], as `sampling::Sampler` defines it and
/// with the same random words. The kept tokens are laid side by side from the best to the worst,
/// which is the kernel's order where a filter leaves 2048 or fewer; elsewhere it has another, and a
/// word picks another token of the same distribution. Pointers are the host's. `log_probabilities`
/// may be null.
void sample(std::int32_t* tokens, const float* logits, std::int64_t rows, std::int64_t vocabulary,
            std::int64_t row_stride, const sampling::Parameters& parameters, sampling::State& state,
            float* log_probabilities);

}  // namespace cukiln::reference
