// Parameters of the kernels: for them, for host code that launches them, and for the tables of sampler.md,
// which scripts/kernel-tables writes from the comments.
#pragma once

namespace cukiln {
namespace sampling {
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct PhiloxState;
struct PhiloxSeed;
}  // namespace sampling

namespace signatures {

// Logit: float, or the bits of a bf16 or f16 number; void on a host that has a pointer to any of them.
template <class Logit>
using Sampler = void(
    int* tokens,                   // out, [rows]
    float* log_probabilities,      // out, [rows], or null
    const Logit* logits,           // [rows, vocabulary], f32 or 16-bit
    sampling::u32 vocabulary,      // 1 .. 4194304
    sampling::i64 row_stride,
    const float* temperature,      // [rows], or null for 1; <= 0 or NaN: greedy
    const int* top_k,              // [rows], or null; <= 0 or >= vocabulary: off; 1: greedy
    const float* top_p,            // [rows], or null; >= 1 or NaN: off
    const float* min_p,            // [rows], or null; <= 0 or NaN: off
    sampling::u32 order,           // 0 top-k first, 1 joint
    sampling::PhiloxState* state,  // {u64 seed, u64 offset, u32 ticket = 0, u32 unused}, 24 bytes, 8-byte
                                   // aligned; null where row_seeds is not
    sampling::PhiloxSeed* row_seeds); // [rows] of {u64 seed, u64 offset}, 8-byte aligned, or null

template <class Logit>
using TopLogProbabilities = void(
    int* top_tokens,                 // out, [rows, count]
    float* top_log_probabilities,    // out, [rows, count], descending
    float* token_log_probabilities,  // out, [rows], or null
    const Logit* logits,             // [rows, vocabulary], f32 or 16-bit
    sampling::u32 vocabulary,        // 1 .. 4194304
    sampling::i64 row_stride,
    sampling::u32 count,             // 0 .. 32, and at most the vocabulary
    const float* temperature,        // [rows], or null for 1; <= 0 or NaN: 1
    const int* tokens);              // [rows]; null where token_log_probabilities is

}  // namespace signatures
}  // namespace cukiln
