// Reductions over the thread block and the cluster, and passes over a row's logits.
#pragma once

#include "sampler_row.cuh"

namespace cukiln {
namespace sampling {

// ---- Reductions. Every thread of the block, or of the cluster, calls these. Functions with several
// callers are not inlined, here and below: that would dominate the compile time.

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Nothing that was written before is to be read by others.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Maps a shared variable to another thread block of the cluster (DSMEM).
template <class T>
__device__ __forceinline__ T* in_rank(T* variable, u32 rank) {
  u64 address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(variable), "r"(rank));
  return reinterpret_cast<T*>(address);
}

// ---- Exchanges through transaction barriers in shared memory, which order no more than what is sent, and so spare
// the fence of the whole device that a release by barrier.cluster is. Each phase of a barrier ends when the bytes
// that it expects have come; what comes before they are expected counts as well.

__device__ __forceinline__ u64 shared_address(const void* variable) { return __cvta_generic_to_shared(variable); }

__device__ __forceinline__ void init_exchange(u64* arrived) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"l"(shared_address(arrived)) : "memory");
}

// Makes init_exchange visible to the cluster; a barrier of it must follow.
__device__ __forceinline__ void fence_exchanges() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Called by one thread for each phase.
__device__ __forceinline__ void expect_bytes(u64* arrived, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"l"(shared_address(arrived)), "r"(bytes)
               : "memory");
}

// Writes a value into the variable of another thread block, which arrives at its barrier. In this kernel nothing
// is of the async proxy, st.async included: no fence.
__device__ __forceinline__ void send(u64* variable, u64 value, u64* arrived, u32 rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"l"(
                   shared_address(in_rank(variable, rank))),
               "l"(value), "l"(shared_address(in_rank(arrived, rank)))
               : "memory");
}

__device__ __forceinline__ void send(Bounds* variable, const Bounds& value, u64* arrived, u32 rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"l"(
                   shared_address(in_rank(variable, rank))),
               "r"(value.largest), "r"(value.lowest), "r"(__float_as_uint(value.sum)), "r"(value.unused),
               "l"(shared_address(in_rank(arrived, rank)))
               : "memory");
}

__device__ __forceinline__ void wait_for(u64* arrived, u32 parity) {
  u32 is_complete;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred complete;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, complete;\n\t"
        "}"
        : "=r"(is_complete)
        : "l"(shared_address(arrived)), "r"(parity)
        : "memory");
  } while (is_complete == 0);
}

__device__ __forceinline__ u64 warp_inclusive_sum(u64 value) {
#pragma unroll
  for (u32 step = 1; step < 32; step *= 2) {
    const u64 lower = __shfl_up_sync(~0u, value, step);
    if (threadIdx.x % 32 >= step) value += lower;
  }
  return value;
}

__device__ __noinline__ Sum block_sum(u64 value) {
  const u64 inclusive = warp_inclusive_sum(value);
  if (threadIdx.x % 32 == 31) row.warp_sums[threadIdx.x / 32] = inclusive;
  __syncthreads();
  Sum sum = {value, inclusive - value, 0};
#pragma unroll
  for (u32 warp = 0; warp < kThreads / 32; ++warp) {
    const u64 other = row.warp_sums[warp];
    sum.before += warp < threadIdx.x / 32 ? other : 0;
    sum.total += other;
  }
  __syncthreads();
  return sum;
}

// block_sum over the cluster: thread blocks in the order of their ranks.
__device__ __noinline__ Sum cluster_sum(u64 value) {
  Sum sum = block_sum(value);
  const u32 round = row.last_round ^ 1;
  u64* const each = row.block_sums[round];
  if (threadIdx.x < kClusterBlocks) *in_rank(each + row.rank, threadIdx.x) = sum.total;
  cluster_arrive();
  cluster_wait();
  row.last_round = round;
  sum.total = 0;
#pragma unroll
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
    if (rank < row.rank) sum.before += each[rank];
    sum.total += each[rank];
  }
  return sum;
}

// A lower bound of the nth largest of the threads' keys: its upper 16 bits.
__device__ __forceinline__ u32 block_nth_largest(u32 key, u32 nth) {
  u32 found = 0;
#pragma unroll 1
  for (u32 bit = 1u << 31; bit >= 1u << 16; bit /= 2) {
    if (__syncthreads_count(key >= (found | bit)) >= nth) found |= bit;
  }
  return found;
}

// ---- Passes over the row. Warps take groups of four logits round-robin over the cluster's thread blocks,
// so that no region of the vocabulary belongs to one thread block.

__device__ __forceinline__ u32 first_group(u32 thread, u32 rank) {
  return (thread / 32 * kClusterBlocks + rank) * 32 + thread % 32;
}

// The thread of its thread block that reads a group.
__device__ __forceinline__ u32 reader_of(u32 group) {
  return group / (32 * kClusterBlocks) % (kThreads / 32) * 32 + group % 32;
}

__device__ __forceinline__ u32 whole_groups(const Logit* logits, u32 vocabulary) {
  return reinterpret_cast<u64>(logits) % sizeof(Group) == 0 ? vocabulary / kGroup : 0;
}

__device__ __forceinline__ u32 read_bits(const Logit* logits, u32 vocabulary, u32 index) {
  if (index >= vocabulary) return 0;
  return sizeof(Logit) == 4 ? __ldg(reinterpret_cast<const u32*>(logits) + index)
                            : __ldg(reinterpret_cast<const u16*>(logits) + index);
}

__device__ __forceinline__ Group group_of(u32 a, u32 b, u32 c, u32 d) {
#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
  return make_uint2(a | b << 16, c | d << 16);
#else
  return make_uint4(a, b, c, d);
#endif
}

// Reads a group of an unaligned row, or the last, incomplete group of a row.
__device__ __noinline__ Group read_by_element(const Logit* logits, u32 vocabulary, u32 group) {
  const u32 first = group * kGroup;
  return group_of(read_bits(logits, vocabulary, first), read_bits(logits, vocabulary, first + 1),
                  read_bits(logits, vocabulary, first + 2), read_bits(logits, vocabulary, first + 3));
}

// Reads without a place in the L1 cache, which costs many rows a few percent.
__device__ __forceinline__ Group stream_group(const Logit* logits, u32 group) {
  const Group* const address = reinterpret_cast<const Group*>(logits) + group;
  Group bits;
#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(bits.x), "=r"(bits.y) : "l"(address));
#else
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "l"(address));
#endif
  return bits;
}

// Any bits beyond the row.
__device__ __forceinline__ Group read_group(const Row& of, u32 group) {
  if (group < of.whole_groups) return __ldg(reinterpret_cast<const Group*>(of.logits) + group);
  if (group * kGroup < of.vocabulary) return read_by_element(of.logits, of.vocabulary, group);
  return Group{};
}

__device__ __forceinline__ float float_of(u32 bits) {
#if defined(CUKILN_LOGITS_BF16)
  return __uint_as_float(bits << 16);
#elif defined(CUKILN_LOGITS_F16)
  float logit;
  asm("cvt.f32.f16 %0, %1;" : "=f"(logit) : "h"(static_cast<u16>(bits)));
  return logit;
#else
  return __uint_as_float(bits);
#endif
}

struct Logits {
  float each[kGroup];
};

__device__ __forceinline__ Logits floats_of(const Group& group) {
#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
  return {float_of(group.x & 0xFFFFu), float_of(group.x >> 16), float_of(group.y & 0xFFFFu),
          float_of(group.y >> 16)};
#else
  return {float_of(group.x), float_of(group.y), float_of(group.z), float_of(group.w)};
#endif
}

struct Keys {
  u32 each[kGroup];
};

// Keys of a group, 0 beyond the row: less than every key.
__device__ __forceinline__ Keys keys_at(const Row& of, const Group& bits, u32 group) {
  const Logits logits = floats_of(bits);
  const bool complete = (group + 1) * kGroup <= of.vocabulary;
  Keys keys;
#pragma unroll
  for (u32 i = 0; i < kGroup; ++i) {
    const bool inside = complete || group * kGroup + i < of.vocabulary;
    keys.each[i] = inside ? key_of(logits.each[i]) : 0;
  }
  return keys;
}

// Logits that a thread reads together.
struct Batch {
  Logits groups[kBatch];
};

// Reads the group and those that follow it in steps of the row's threads, beginning with the one of number
// `rotation`. NaN becomes -inf; beyond the row are `beyond`. `streams`: without a place in the L1 cache.
__device__ __forceinline__ Batch read_batch(const Row& of, u32 group, u32 rotation, bool streams,
                                            float beyond) {
  u32 places[kBatch];
#pragma unroll
  for (u32 i = 0; i < kBatch; ++i) places[i] = group + (i + rotation) % kBatch * kRowThreads;
  Group bits[kBatch];
  const bool complete = group + (kBatch - 1) * kRowThreads < of.whole_groups;
  if (complete) {
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      bits[i] = streams ? stream_group(of.logits, places[i])
                        : __ldg(reinterpret_cast<const Group*>(of.logits) + places[i]);
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) bits[i] = read_group(of, places[i]);
  }
  Batch batch;
#pragma unroll
  for (u32 i = 0; i < kBatch; ++i) {
    batch.groups[i] = floats_of(bits[i]);
#pragma unroll
    for (u32 j = 0; j < kGroup; ++j) {
      batch.groups[i].each[j] = max_f32(batch.groups[i].each[j], negative_infinity());
    }
  }
  if (!complete) {
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
#pragma unroll
      for (u32 j = 0; j < kGroup; ++j) {
        if (places[i] * kGroup + j >= of.vocabulary) batch.groups[i].each[j] = beyond;
      }
    }
  }
  return batch;
}

// What the first pass tells of a thread's logits: the largest, and if asked for, the sum of their weights
// relative to a logit `reference` that is not less than any of them.
struct Summary {
  float largest;
  float reference;
  float sum;
};

// Where the first pass has several batches for each sample, it keeps two logits of one batch in so many.
__device__ __forceinline__ u32 batches_a_sample(u32 vocabulary) {
  return vocabulary / (kBatch * kGroup * kRowThreads * kSamples / 2) + 1;
}

// The first pass, which needs no maximum: where a batch has a larger logit than all before, the sum is
// scaled to it. For filters it keeps samples, and the largest logits of batches, so that passes skip them.
template <bool kFilters>
__device__ __noinline__ Summary summarize_row(bool weigh) {
  const Row local = row;
  // Each warp takes samples of another group of a batch.
  const u32 rotation = kFilters ? threadIdx.x / 32 : 0;
  float* sample = samples() + threadIdx.x;
  u32 until_sample = 1;
  u32 number = 0;
  if (kFilters) {
#pragma unroll
    for (u32 i = 0; i < kSamples; ++i) sample[i * kThreads] = not_a_number();
  }
  Summary summary = {negative_infinity(), -kLargestFloat, 0.0f};
#pragma unroll 1
  for (u32 group = first_group(threadIdx.x, local.rank); group * kGroup < local.vocabulary;
       group += kBatch * kRowThreads) {
    const Batch batch = read_batch(local, group, rotation, !kFilters, negative_infinity());
    float largest = negative_infinity();
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const float* const each = batch.groups[i].each;
      largest = max_f32(largest, max_f32(max_f32(each[0], each[1]), max_f32(each[2], each[3])));
    }
    summary.largest = max_f32(summary.largest, largest);
    if (kFilters && number < kMaxima) maxima()[number * kThreads + threadIdx.x] = largest;
    if (kFilters && --until_sample == 0) {
      until_sample = batches_a_sample(local.vocabulary);
      sample[0] = batch.groups[0].each[0];  // -inf, as a token, beyond the row
      sample[kThreads] = batch.groups[0].each[2];
      sample += 2 * kThreads;
    }
    if (!weigh) {
      ++number;
      continue;
    }
    if (largest > summary.reference) {
      const float factor = exp2_approx(mul_rn(sub_rn(largest, summary.reference), local.exponent_factor));
      summary.sum = mul_rn(summary.sum, factor);
      summary.reference = largest;
    }
    float sums[kGroup] = {};
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
#pragma unroll
      for (u32 j = 0; j < kGroup; ++j) {
        const float gap = sub_rn(summary.reference, batch.groups[i].each[j]);
        sums[j] = add_rn(sums[j], exp2_approx(mul_rn(gap, local.exponent_factor)));
      }
    }
    const float weight = add_rn(add_rn(sums[0], sums[1]), add_rn(sums[2], sums[3]));
    if (kFilters && number < kMaxima) batch_weights()[number * kThreads + threadIdx.x] = weight;
    ++number;
    summary.sum = add_rn(summary.sum, weight);
  }
  return summary;
}

// What to do with the tokens inside the interval.
enum Pass : u32 {
  kStage,  // puts them into this thread block's list
  kCount,  // adds the weight of each to the histogram, whose bins have 2^shift keys
};

// One pass over this thread's logits. Returns the weight of those above the interval. Its keys are not less
// than that of -inf.
__device__ __noinline__ u64 scan_row(Pass pass, Interval interval, u32 shift) {
  const Row local = row;
  // Floats order as their keys do.
  const float low = logit_of(interval.low);
  const float above = logit_of(interval.high + 1);
  float sum = 0.0f;
  u32 number = 0;
#pragma unroll 1
  for (u32 group = first_group(threadIdx.x, local.rank); group * kGroup < local.vocabulary;
       group += kBatch * kRowThreads) {
    // Where the first pass kept no maxima, low is -inf.
    if (number < kMaxima && maxima()[number++ * kThreads + threadIdx.x] < low) continue;
    const Batch batch = read_batch(local, group, 0, false, not_a_number());
    u32 inside = 0;  // a bit for each token
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
#pragma unroll
      for (u32 j = 0; j < kGroup; ++j) {
        const float logit = batch.groups[i].each[j];
        if (logit >= above) {
          sum = add_rn(sum, weight_of_logit(local, logit));
        } else if (logit >= low) {
          inside |= 1u << (i * kGroup + j);
        }
      }
    }
    if (inside == 0) continue;
    u32 place = pass == kStage ? atomicAdd(&shared.staged_count, static_cast<u32>(__popc(inside))) : 0;
#pragma unroll 1
    for (; inside != 0; inside &= inside - 1) {
      const u32 i = __ffs(static_cast<int>(inside)) - 1;
      const u32 index = (group + i / kGroup * kRowThreads) * kGroup + i % kGroup;
      const u32 key = key_of(float_of(read_bits(local.logits, local.vocabulary, index)));
      if (pass == kCount) {
        // One atomic for all equals of the warp: where tokens are so many, there often are some.
        const u32 equals = __match_any_sync(__activemask(), key);
        if (threadIdx.x % 32 == __ffs(static_cast<int>(equals)) - 1u) {
          atomicAdd(histogram() + ((key - interval.low) >> shift), weight_of(local, key) * __popc(equals));
        }
      } else {
        if (place < kCandidates) shared.staged[place] = u64{key} << 32 | (~index & 0xFFFFFFFFu);
        ++place;
      }
    }
  }
  return in_units(sum);
}

// The weight of this thread's tokens with keys >= `lowest`.
__device__ __forceinline__ u64 weigh_row(u32 lowest) { return scan_row(kStage, {lowest, lowest - 1}, 0); }

// The batches that a thread reads again: of those of its warp whose largest logit is not below `bound`, one for
// each lane in turn, since few batches of many threads are; and then its own of which the first pass kept no
// maximum.
struct Again {
  const u32* listed;
  u32 count;
  u32 next;
  u32 group;

  // The first group of the next batch, which becomes `of`. Returns whether there is one.
  __device__ __forceinline__ bool take(const Row& row_of, u32* of) {
    if (next < count) {
      *of = listed[next];
      next += 32;
      return true;
    }
    *of = group;
    group += kBatch * kRowThreads;
    return *of * kGroup < row_of.vocabulary;
  }
};

__device__ __forceinline__ Again list_batches(const Row& of, float bound) {
  const u32 lane = threadIdx.x % 32;
  u32* const listed = batches_again() + threadIdx.x / 32 * 32 * kMaxima;
  u32 count = 0;
  u32 group = first_group(threadIdx.x, of.rank);
#pragma unroll 1
  for (u32 number = 0; number < kMaxima && (group - lane) * kGroup < of.vocabulary; ++number) {
    const float largest = maxima()[number * kThreads + threadIdx.x];
    const bool reads = group * kGroup < of.vocabulary && largest >= bound;
    const u32 voters = __ballot_sync(~0u, reads);
    if (reads) listed[count + __popc(voters & ((1u << lane) - 1))] = group;
    count += __popc(voters);
    group += kBatch * kRowThreads;
  }
  __syncwarp();
  return {listed, count, lane, group};
}

// Puts the batch's tokens that are not below `low` into this thread block's list.
__device__ __forceinline__ void stage_batch(const Row& of, u32 group, float low) {
  const Batch batch = read_batch(of, group, 0, false, not_a_number());
  u32 inside = 0;  // a bit for each token
#pragma unroll
  for (u32 i = 0; i < kBatch * kGroup; ++i) {
    if (batch.groups[i / kGroup].each[i % kGroup] >= low) inside |= 1u << i;
  }
  if (inside == 0) return;
  u32 place = atomicAdd(&shared.staged_count, static_cast<u32>(__popc(inside)));
#pragma unroll 1
  for (; inside != 0; inside &= inside - 1) {
    const u32 i = __ffs(static_cast<int>(inside)) - 1;
    const u32 index = (group + i / kGroup * kRowThreads) * kGroup + i % kGroup;
    const u32 key = key_of(float_of(read_bits(of.logits, of.vocabulary, index)));
    if (place < kCandidates) shared.staged[place] = u64{key} << 32 | (~index & 0xFFFFFFFFu);
    ++place;
  }
}

// Puts this thread block's tokens with keys >= `lowest`, which is not less than that of -inf, into its list.
__device__ __noinline__ void stage_row(u32 lowest) {
  const Row local = row;
  const float low = logit_of(lowest);
  Again again = list_batches(local, low);
#pragma unroll 1
  for (u32 group; again.take(local, &group);) stage_batch(local, group, low);
}

// Weights of tokens above each of some proposals.
struct Above {
  float each[kWeighed];
};

__device__ __forceinline__ void add_above(const Row& of, const Batch& batch, const Above& limits, Above* sums) {
#pragma unroll
  for (u32 i = 0; i < kBatch * kGroup; ++i) {
    const float logit = batch.groups[i / kGroup].each[i % kGroup];
    const float weight = exp2_approx(mul_rn(sub_rn(of.max, logit), of.exponent_factor));  // the maximum is finite
#pragma unroll
    for (u32 k = 0; k < kWeighed; ++k) {
      if (logit > limits.each[k]) sums->each[k] = add_rn(sums->each[k], weight);
    }
  }
}

// Weighs the tokens of this thread above each proposal, of at most two.
__device__ __noinline__ Above weigh_above(const u64* tokens, u32 count) {
  const Row local = row;
  Above limits;
  float lowest = kLargestFloat;
#pragma unroll
  for (u32 k = 0; k < kWeighed; ++k) {
    limits.each[k] = k < count ? logit_of(static_cast<u32>(tokens[k] >> 32)) : kLargestFloat;
    lowest = min_f32(lowest, limits.each[k]);
  }
  Above sums = {};
  // The latest first, which the first pass left in the L1 cache. Two batches at a time, so that memory is waited for
  // half as often; before those what is left.
  constexpr u32 kStep = kBatch * kRowThreads;
  const u32 first = first_group(threadIdx.x, local.rank);
  const u32 beyond = first + (kBatch - 1) * kRowThreads;
  const u32 complete = local.whole_groups > beyond ? (local.whole_groups - beyond - 1) / kStep + 1 : 0;
  u32 pairs = min(complete, kMaxima) / 2;
  u32 number = 2 * pairs;
#pragma unroll 1
  for (u32 group = first + number * kStep; group * kGroup < local.vocabulary; group += kStep) {
    if (number < kMaxima && maxima()[number++ * kThreads + threadIdx.x] <= lowest) continue;
    add_above(local, read_batch(local, group, 0, false, not_a_number()), limits, &sums);
  }
#pragma unroll 1
  while (pairs-- > 0) {
    const float* const largest = maxima() + 2 * pairs * kThreads + threadIdx.x;
    if (max_f32(largest[0], largest[kThreads]) <= lowest) continue;
    const Group* const groups = reinterpret_cast<const Group*>(local.logits) + first + 2 * pairs * kStep;
    Group bits[2 * kBatch];
#pragma unroll
    for (u32 i = 0; i < 2 * kBatch; ++i) bits[i] = __ldg(groups + i * kRowThreads);
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      Batch batch;
#pragma unroll
      for (u32 j = 0; j < kBatch; ++j) batch.groups[j] = floats_of(bits[i * kBatch + j]);
      add_above(local, batch, limits, &sums);
    }
  }
  return sums;
}

// Finds, among the tokens that `thread` of this thread block reads, in the order of their indices, the one at
// which the weight of those with keys >= `lowest` exceeds `target`, or one of the largest if it does not. All lanes of
// a warp call this, with the same arguments. Returns key << 32 | index in one lane, 0 in the others.
__device__ __noinline__ u64 find_token(u32 thread, u32 lowest, u64 target) {
  const Row local = row;
  const u32 lane = threadIdx.x % 32;
  u64 before = 0;
  u64 best = 0;  // key << 32 | ~index
#pragma unroll 1
  for (u32 first = first_group(thread, local.rank); first * kGroup < local.vocabulary;
       first += 32 * kRowThreads) {
    const u32 group = first + lane * kRowThreads;
    const Keys keys = keys_at(local, read_group(local, group), group);
    u64 weights[kGroup];
    u64 own = 0;
#pragma unroll
    for (u32 i = 0; i < kGroup; ++i) {
      const u32 key = keys.each[i];
      weights[i] = key >= lowest ? weight_of(local, key) : 0;
      own += weights[i];
      best = max(best, u64{key} << 32 | ~(group * kGroup + i));
    }
    const u64 inclusive = warp_inclusive_sum(own);
    const u32 beyond = __ballot_sync(~0u, before + inclusive > target);
    if (beyond != 0) {
      if (lane != __ffs(static_cast<int>(beyond)) - 1u) return 0;
      u64 sum = before + inclusive;
      u64 token = 0;
#pragma unroll
      for (u32 i = kGroup; i-- > 0;) {
        if (sum > target) token = u64{keys.each[i]} << 32 | (group * kGroup + i);
        sum -= weights[i];
      }
      return token;
    }
    before += __shfl_sync(~0u, inclusive, 31);
  }
  const u32 key = static_cast<u32>(best >> 32);
  const bool is_largest = key == __reduce_max_sync(~0u, key);
  const u32 index = ~static_cast<u32>(best);
  const bool is_first = index == __reduce_min_sync(~0u, is_largest ? index : ~0u);
  return key != 0 && is_largest && is_first ? u64{key} << 32 | index : 0;
}

}  // namespace sampling
}  // namespace cukiln
