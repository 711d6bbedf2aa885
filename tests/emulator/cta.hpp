// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state that the files of the emulator share: a cluster, its CTAs and their threads.

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "emulator/emulator.hpp"
#include "emulator/swizzle.hpp"
#include "kernels_src/nvfp4/tcgen05.cuh"

namespace cukiln::emulator {

inline constexpr u32 kMaxSharedBytes = 232448;
inline constexpr u32 kRankShift = 24;
inline constexpr u32 kOffsetMask = (1u << kRankShift) - 1;
inline constexpr u32 kLanes = 128;
inline constexpr u32 kPoison = 0xFFFFFFFF;  // a NaN as a float, four NaNs as scales

// What a thread waits for: `over(what, argument)` is true once it has happened.
struct Wait {
  std::atomic<const void*> what{nullptr};
  std::atomic<bool (*)(const void*, u64)> over{nullptr};
  std::atomic<u64> argument{0};
};

// Barrier of all threads of a CTA, a warp or a cluster.
struct ThreadBarrier {
  u32 expected = 0;
  std::atomic<u32> arrived{0};
  std::atomic<u32> generation{0};
};

// Phase in bit 63, pending arrivals in bits 32 to 62, bytes still expected (signed) in bits 0
// to 31.
struct Mbarrier {
  std::atomic<u64> word{0};
  u32 arrivals = 0;  // of a phase; 0: no barrier
  const void* upper() const { return reinterpret_cast<const char*>(&word) + 4; }
};

struct Store {
  Map map;
  std::array<u32, 3> at;
  u32 source;
};

struct Cta;
struct Thread {
  Cta* cta = nullptr;
  u32 index = 0;
  Wait wait;
  std::atomic<bool> ended{false};
  bool after_fence = false;     // since this thread last waited
  bool unfenced_loads = false;  // of tensor memory, not yet followed by tcgen05_fence_before_sync
  bool writes_fenced = false;   // since the warp's last store
  std::vector<Store> group;
  std::vector<std::vector<Store>> groups;
};

struct Cluster;
struct Cta {
  Cluster* cluster = nullptr;
  u32 rank = 0;
  u32 shared_bytes = 0;
  std::unique_ptr<u8[]> memory;
  u8* shared = nullptr;
  std::unique_ptr<u32[]> tmem;  // [lane][column]
  std::unique_ptr<Mbarrier[]> barriers;
  bool allocated = false;
  ThreadBarrier all;
  std::unique_ptr<ThreadBarrier[]> warps;
  std::unique_ptr<Thread[]> threads;
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;
  ThreadBarrier all;
};

extern constinit thread_local Thread* self;

/// Prints which rule was broken and where, and ends the process with code 2.
[[noreturn]] [[gnu::format(printf, 1, 2)]] void fault(const char* format, ...);

/// Returns `bytes` of a CTA's shared memory; a fault if they exceed it. `what`: the access, for the
/// fault.
u8* shared_bytes(Cta& cta, u32 offset, u32 bytes, const char* what);
/// Returns the CTA of an address that shared_address or address_in_rank returned.
Cta& cta_of(u32 address);
Mbarrier& mbarrier_at(u32 address, bool of_any_rank);
/// Subtracts arrivals and adds expected bytes atomically; completes the phase when nothing is
/// pending.
void update(Mbarrier& barrier, u32 arrivals, std::int32_t bytes);

}  // namespace cukiln::emulator
