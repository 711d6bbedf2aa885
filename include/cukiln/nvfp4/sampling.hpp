// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/tensor_view.hpp>
#include <cukiln/result.hpp>

/// One token for each row of logits, and log-probabilities. Semantics in full:
/// `kernels_src/sampling/sampler.md`.
namespace cukiln::sampling {
inline namespace v0 {

/// What top-p's share is a share of, when top-k is on too. The numbers are the kernel's.
enum class FilterOrder : std::uint32_t {
  top_k_first = 0,  ///< of the top-k set: renormalised after top-k
  joint = 1,        ///< of the whole row
};

/// The random state, in device memory, 8-byte aligned. A launch draws with {seed, offset} and adds
/// 1 to offset, so a replayed graph draws anew; the same {seed, offset} repeats a draw. One a
/// stream.
struct State {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::uint32_t ticket = 0;  ///< the kernel's own; 0 between launches
  std::uint32_t unused = 0;
};

/// The random state of one row, in device memory, 8-byte aligned: for requests that draw the same
/// wherever they are in a batch. A launch draws with {seed, offset} and adds 1 to offset.
struct RowSeed {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// Parameters of each row, dense [rows], or absent.
struct Parameters {
  VectorView temperature;  ///< f32; absent: 1; ≤ 0 or NaN: the largest logit, lowest index
  VectorView top_k;        ///< i32; absent, ≤ 0, ≥ vocabulary: off; 1: greedy
  VectorView top_p;        ///< f32; absent, ≥ 1, NaN: off
  VectorView min_p;        ///< f32; absent, ≤ 0, NaN: off
  FilterOrder order = FilterOrder::top_k_first;
  RowSeed* row_seeds = nullptr;  ///< [rows], instead of the launch's State; null: absent
};

/// Draws tokens: temperature, top-k, top-p, min-p, greedy, row by row.
///
/// Shapes: tokens i32 [rows], dense; logits [rows, vocabulary] of the type given to `create`, any
/// row stride (0 repeats one row) and alignment. Limits: vocabulary 1 to kMaxVocabulary. Ties at a
/// threshold are all kept. A NaN logit counts as −inf. Determinism: seed, offset, row index, logits
/// and parameters decide the token; with `row_seeds` the row index does not count. The rules of
/// nvfp4.hpp for launchers apply. Source: Salmon et al. (2011) for Philox4x32-10; Holtzman et al.
/// (2020) for top-p; Nguyen et al. (2024) for min-p.
class CUKILN_API Sampler {
 public:
  static constexpr std::int64_t kMaxVocabulary = 4'194'304;

  /// `logits`: f32, bf16 or f16; another type is invalid_argument.
  static Result<Sampler> create(KernelLoader& loader, int device, DataType logits = DataType::f32);

  /// log_probabilities, f32 [rows] or absent: the natural logarithm of the probability that the
  /// token was drawn with, after temperature and filters; of a greedy row, of its probability under
  /// the plain softmax at temperature 1 (both are vLLM's processed log-probabilities). To 1e-5,
  /// and of top-p to the share of a token at the threshold.
  /// `state` may be null where the parameters have row_seeds, which then decide alone.
  Result<void> launch(Stream stream, const MutableVectorView& tokens, const MatrixView& logits,
                      const Parameters& parameters, State* state,
                      const MutableVectorView& log_probabilities = {}) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Finds the largest log-probabilities of each row, with their tokens, and that of a given token:
/// the log-softmax of logits / temperature over the whole row, before any filter. Without
/// temperatures that is what vLLM returns by default (raw_logprobs), with the sampler's what SGLang
/// does.
///
/// Shapes: top_tokens i32 and top_log_probabilities f32 [rows, count], dense, descending, among
/// equal logits the lower token first; logits as in Sampler; temperature f32 [rows], or absent: 1,
/// which ≤ 0 and NaN count as too; tokens i32 and token_log_probabilities f32 [rows], or both
/// absent. A token outside the vocabulary has NaN. Limits: count 0 to kMaxCount, and at most the
/// vocabulary. Error: 1e-5. Determinism: logits and temperature decide every bit.
class CUKILN_API TopLogProbabilities {
 public:
  static constexpr std::int64_t kMaxCount = 32;

  /// `logits`: f32, bf16 or f16; another type is invalid_argument.
  static Result<TopLogProbabilities> create(KernelLoader& loader, int device,
                                            DataType logits = DataType::f32);

  Result<void> launch(Stream stream, const MutableMatrixView& top_tokens,
                      const MutableMatrixView& top_log_probabilities, const MatrixView& logits,
                      const VectorView& temperature = {}, const VectorView& tokens = {},
                      const MutableVectorView& token_log_probabilities = {}) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace cukiln::sampling
