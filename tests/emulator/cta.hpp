// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the parts of the emulator share: a cluster, its CTAs and their threads.

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "emulator/emulator.hpp"
#include "emulator/swizzle.hpp"
#include "kernels_src/nvfp4/tcgen05.cuh"

namespace cukiln::emulator {

inline constexpr u32 kMostShared = 232448;
inline constexpr u32 kRankShift = 24;
inline constexpr u32 kOffsetMask = (1u << kRankShift) - 1;
inline constexpr u32 kLanes = 128;
inline constexpr u32 kPoison = 0xFFFFFFFF;  // a NaN as a float, four NaNs as scales

// Something that a thread waits for: `over` says whether it has come.
struct Wait {
  std::atomic<const void*> what{nullptr};
  std::atomic<bool (*)(const void*, u64)> over{nullptr};
  std::atomic<u64> argument{0};
};

// All threads of a CTA, a warp or a cluster.
struct Rendezvous {
  u32 expected = 0;
  std::atomic<u32> arrived{0};
  std::atomic<u32> generation{0};
};

// phase in bit 63, pending arrivals in 32 to 62, bytes still to come (signed) in 0 to 31.
struct Mbarrier {
  std::atomic<u64> word{0};
  u32 arrivals = 0;  // 0: no barrier
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
  Rendezvous all;
  std::unique_ptr<Rendezvous[]> warps;
  std::unique_ptr<Thread[]> threads;
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;
  Rendezvous all;
};

extern constinit thread_local Thread* self;

/// Says which rule was broken and where, and ends the process with code 2.
[[noreturn]] [[gnu::format(printf, 1, 2)]] void fault(const char* format, ...);

/// `bytes` of a CTA's shared memory.
u8* shared_bytes(Cta& cta, u32 offset, u32 bytes, const char* what);
/// The CTA that an address as shared_address or address_in_rank gives it belongs to.
Cta& cta_of(u32 address);
Mbarrier& mbarrier_at(u32 address, bool of_any_rank);
/// Takes arrivals and adds bytes in one step; ends the phase when nothing is left.
void update(Mbarrier& barrier, u32 arrivals, std::int32_t bytes);

}  // namespace cukiln::emulator
