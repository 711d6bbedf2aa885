// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

/// One token for each row of logits. Semantics in full: `kernels_src/README.md`.
namespace cukiln::sampling {
inline namespace v0 {

enum class LogitType { f32, bf16, f16 };

/// What top-p's share is a share of, when top-k is on too. The numbers are the kernel's.
enum class FilterOrder : std::uint32_t {
  top_k_first = 0,  ///< of the top-k set: renormalised after top-k
  joint = 1,        ///< of the whole row
};

/// Lies on the device, 8-byte aligned. A launch draws with {seed, offset} and adds 1 to offset, so
/// a replayed graph draws anew; the same {seed, offset} repeats a draw. One a stream.
struct State {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::uint32_t ticket = 0;  ///< the kernel's own; 0 between launches
  std::uint32_t unused = 0;
};

/// Device arrays of [rows], or null.
struct Parameters {
  const float* temperature = nullptr;   ///< null: 1; ≤ 0 or NaN: the largest logit, lowest index
  const std::int32_t* top_k = nullptr;  ///< null, ≤ 0, ≥ vocabulary: off
  const float* top_p = nullptr;         ///< null, ≥ 1, NaN: off
  const float* min_p = nullptr;         ///< null, ≤ 0, NaN: off
  FilterOrder order = FilterOrder::top_k_first;
};

/// Draws tokens: temperature, top-k, top-p, min-p, greedy, row by row.
///
/// Shapes: tokens int32 [rows]; logits [rows, vocabulary] of the LogitType, any stride (in
/// elements; 0 repeats one row) and alignment. Limits: vocabulary 1 to kMaxVocabulary. Ties at a
/// threshold are all kept. A NaN logit counts as −inf. Determinism: seed, offset, row index, logits
/// and parameters decide the token. Threads, asynchrony, lifetime: as in nvfp4.hpp. Source: Salmon
/// et al. (2011) for Philox4x32-10; Holtzman et al. (2020) for top-p; Nguyen et al. (2024) for
/// min-p.
class CUKILN_API Sampler {
 public:
  static constexpr std::int64_t kMaxVocabulary = 4'194'304;

  /// Errors: those of `KernelLoader::get`.
  static Result<Sampler> create(KernelLoader& loader, LogitType type = LogitType::f32);

  /// log_probabilities [rows], or null: the natural logarithm of the probability that the token was
  /// drawn with, after temperature and filters; of a greedy row, of its probability under the plain
  /// softmax at temperature 1 (both are vLLM's processed log-probabilities). To 1e-5.
  /// Errors: invalid_argument, with the given and the expected value; driver.
  Result<void> launch(Stream stream, std::int32_t* tokens, const void* logits, std::int64_t rows,
                      std::int64_t vocabulary, std::int64_t row_stride,
                      const Parameters& parameters, State* state,
                      float* log_probabilities = nullptr) const noexcept;

 private:
  TypedKernel<std::int32_t*, float*, const void*, std::uint32_t, std::int64_t, const float*,
              const std::int32_t*, const float*, const float*, std::uint32_t, State*>
      kernel_;
  std::size_t logit_bytes_ = 4;
};

}  // namespace v0
}  // namespace cukiln::sampling
