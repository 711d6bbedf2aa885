// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cukiln::testing {

/// What the fixtures of the sampling kernels draw their logits from.
struct RandomLogits {
  explicit RandomLogits(std::uint64_t seed) : random(seed) {}

  std::vector<float> normal_logits(std::size_t count, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> logits(count);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }

  std::mt19937_64 random;
};

}  // namespace cukiln::testing
