// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "nvfp4/host/checks.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/nvfp4/sampling.hpp>

/// What the launchers of kernels with a cluster of thread blocks for each row of logits share.
namespace cukiln::sampling {

inline constexpr std::uint32_t kRowThreadBlocks = 8;

/// `sampler_bf16`. Errors: invalid_argument for a type that no kernel reads.
inline Result<std::string> module_of(const char* kernel, DataType logits) {
  switch (logits) {
    case DataType::f32: return std::string(kernel);
    case DataType::bf16:
    case DataType::f16: return std::string(kernel) + "_" + name_of(logits);
    default:
      return make_error(ErrorCode::invalid_argument, "logits are {}; expected f32, bf16 or f16",
                        name_of(logits));
  }
}

inline Result<void> check_logits(const MatrixView& logits, DataType type) noexcept {
  constexpr std::int64_t kMaxRows = INT32_MAX / kRowThreadBlocks;
  if (logits.rows < 0 || logits.rows > kMaxRows) {
    return kernels::refuse("logits are [{}, {}]; expected 0 to {} rows", logits.rows,
                           logits.columns, kMaxRows);
  }
  if (logits.columns < 1 || logits.columns > Sampler::kMaxVocabulary) {
    return kernels::refuse("logits are [{}, {}]; expected a vocabulary of 1 to {}", logits.rows,
                           logits.columns, Sampler::kMaxVocabulary);
  }
  return kernels::check_matrix("logits", logits, type, bytes_of(type));
}

inline LaunchConfig config_of(const MatrixView& logits) noexcept {
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(logits.rows) * kRowThreadBlocks;
  config.block.x = 256;
  // An SM holds four of a row's eight blocks: clusters that are spread leave places
  // empty.
  config.balance_clusters = true;
  return config;
}

}  // namespace cukiln::sampling
