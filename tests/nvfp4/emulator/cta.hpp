// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state that the files of the emulator share: a cluster, its CTAs and their threads.

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
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

// What a thread waits for: `over(what, argument, order)` is true once it has happened. Only the
// thread that waits acquires; those that look whether it waits still are ordered by nothing.
using IsOver = bool (*)(const void*, u64, std::memory_order);
struct Wait {
  std::atomic<const void*> what{nullptr};
  std::atomic<IsOver> over{nullptr};
  std::atomic<u64> argument{0};
};

// Barrier of all threads of a CTA, a warp or a cluster, or of some of a CTA's.
struct ThreadBarrier {
  u32 expected = 0;
  std::atomic<u32> arrived{0};
  std::atomic<u32> generation{0};
};

// Phase in bit 63, pending arrivals in bits 32 to 62, bytes still expected (signed) in bits 0
// to 31.
struct Mbarrier {
  std::atomic<u64> word{0};
  std::atomic<u32> phase_arrivals{0};  // 0: no barrier. Relaxed: it orders nothing
  std::atomic<bool> fenced{false};     // by mbarrier_init_fence. Likewise
  u32 arrivals() const { return phase_arrivals.load(std::memory_order_relaxed); }
  const void* upper() const { return reinterpret_cast<const char*>(&word) + 4; }
};

struct Store {
  Map map;
  std::array<u32, 3> at;
  u32 source;
};

/// What a thread loads of shared memory.
struct SharedLoad {
  u32 begin;
  u32 end;
  bool released = false;  // the thread has arrived at an mbarrier since: no fence comes in time
};

struct Cta;
struct Thread {
  Cta* cta = nullptr;
  u32 index = 0;
  Wait wait;
  std::atomic<bool> ended{false};
  bool after_fence = false;       // since this thread last waited
  bool unfenced_loads = false;    // of tensor memory, not yet followed by tcgen05_fence_before_sync
  bool writes_fenced = false;     // since the warp last committed stores
  std::vector<SharedLoad> loads;  // of shared memory, since async_proxy_fence
  bool waited = false;            // for the preceding kernel
  bool arrived = false;           // at the cluster's barrier, and not waited since
  u32 generation = 0;             // of the cluster's barrier, then
  std::atomic<u32> arrivals_left{0};  // at mbarriers of other CTAs, issued and not performed
  std::atomic<bool> makes_mbarrier{false};
  std::vector<Mbarrier*> initialised;  // and not yet followed by mbarrier_init_fence
  std::vector<Store> group;
  std::vector<std::vector<Store>> groups;
};

struct Cluster;
class AsyncUnit;
struct Cta {
  Cta();
  Cta(const Cta&) = delete;
  Cta& operator=(const Cta&) = delete;
  ~Cta();
  Cluster* cluster = nullptr;
  u32 rank = 0;
  u32 shared_bytes = 0;
  std::unique_ptr<u8[]> memory;
  u8* shared = nullptr;
  std::unique_ptr<u32[]> tmem;  // [lane][column]
  std::unique_ptr<Mbarrier[]> barriers;
  bool has_tmem = true;                    // its kernel allocates tensor memory
  bool allocated = false;                  // tensor memory; its threads must be ordered
  std::atomic<bool> has_allocated{false};  // for its pair, which must not
  std::atomic<bool> freed{false};          // of a pair: by either
  std::unique_ptr<AsyncUnit> tensor_core;  // of a pair: that of the first, which issues
  std::atomic<bool> launched_dependents{false};
  std::atomic<u32> running{0};         // threads that have not ended
  std::atomic<bool> has_loads{false};  // of shared memory, that note_load saw
  std::mutex loads_mutex;              // of its threads
  ThreadBarrier all;
  std::array<ThreadBarrier, 16>
      named;  // the first is `all`; each arrival says how many are expected
  std::unique_ptr<ThreadBarrier[]> warps;
  std::unique_ptr<Thread[]> threads;
};

/// Performs late what threads of a cluster issue. A thread of the unit only acquires what was
/// issued to it, and what it performs is released by arrivals only: it orders no two accesses that
/// the kernel does not.
class AsyncUnit {
 public:
  enum class Order {
    any,       // TMA loads
    in_order,  // MMAs and copies of scales; but arrivals of commits, once they are due, in any
  };
  using Operation = std::function<void()>;

  /// With seed 0 operations are performed by the thread that issues them.
  AsyncUnit(Cluster& cluster, Order order, u32 seed);
  AsyncUnit(const AsyncUnit&) = delete;
  AsyncUnit& operator=(const AsyncUnit&) = delete;
  ~AsyncUnit();

  /// Called by threads of the kernel. `operation` runs with `self` and `blockIdx` of the caller.
  void issue(Operation operation);
  /// Called by an operation, with what is to happen at an mbarrier when it is complete.
  void arrive_later(Operation arrival);
  /// False if all that was issued is complete.
  bool pending() const {
    return left_.load(std::memory_order_relaxed) != 0 || busy_.load(std::memory_order_relaxed);
  }
  /// What was issued and is not complete.
  u32 left() const { return left_.load(std::memory_order_relaxed); }
  /// What is left is performed last of all.
  bool only_last() const { return left() == last_.load(std::memory_order_relaxed); }

 private:
  struct Issued;
  void run();
  void collect();
  void set_due(Issued& issued, bool may_be_last);
  bool perform_due(u64 now);
  void perform(std::vector<std::unique_ptr<Issued>>& from, std::size_t at);
  std::unique_ptr<Issued> made(Operation operation) const;

  Cluster& cluster_;
  const Order order_;
  const u32 seed_;
  std::atomic<Issued*> issued_{nullptr};  // the latest first
  std::atomic<u32> pushes_{0};
  std::atomic<u32> left_{0};
  std::atomic<u32> last_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> ends_{false};
  std::mt19937 random_;                           // of the unit's thread, as are these
  std::vector<std::unique_ptr<Issued>> waiting_;  // in the order of issue
  std::vector<std::unique_ptr<Issued>> arrivals_;
  std::thread thread_;
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;
  ThreadBarrier all;
  std::atomic<u32> relaxed_arrivals{0};
  std::atomic<u64> steps{0};  // of its threads: emulated instructions
  std::atomic<u32> preceding_ended{0};
  bool late_mbarriers = false;      // made after the preceding kernel has ended
  std::atomic<u32> early_loads{0};  // issued before griddepcontrol_wait
  std::unique_ptr<AsyncUnit> tma;
  std::vector<const AsyncUnit*> units() const;  // TMA and the tensor cores
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
/// The same, of an operation of TMA or the tensor core: mbarrier_init_fence has shown it to them.
Mbarrier& async_mbarrier_at(u32 address, bool of_any_rank);
/// True if a thread has ended, or waits for something that has not happened.
bool ended_or_waits(const Thread& thread);
/// True if every thread that has not ended, of which there is one, waits for something that has not
/// happened.
bool all_wait(const Cluster& cluster);
/// Protects what the preceding kernel reads and writes until it ends, which wakes all that wait for
/// it. Null: there is none.
void begin_preceding(Cluster& cluster, const Grid* grid);
void end_preceding(Cluster& cluster);
void wait_for_preceding();
/// An arrival of this thread at a barrier: a fault if loads of tensor memory are not fenced.
void expect_fenced_loads();
/// TMA, or another CTA, writes to shared memory: a fault if a thread's loads of what is there may
/// not be complete. They are once the thread has executed async_proxy_fence.
void expect_no_loads(Cta& cta, u32 offset, u32 bytes, const char* what);
/// Counts an emulated instruction of this thread.
void step();
/// Waits until `over` has happened to `what`, which is looked at again whenever `word` changes.
void wait_for(const void* what, const void* word, IsOver over, u64 argument);
/// Wait for, and wake, threads at a word, as the system call of that name.
void futex_wait(const void* word, u32 value);
void futex_wake_all(const void* word);
/// Subtracts arrivals and adds expected bytes atomically; completes the phase when nothing is
/// pending.
void update(Mbarrier& barrier, u32 arrivals, std::int32_t bytes);

}  // namespace cukiln::emulator
