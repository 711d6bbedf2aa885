// SPDX-License-Identifier: Apache-2.0
// Threads, shared memory, mbarriers; deadlock detection.
#include "emulator/emulator.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "emulator/cta.hpp"

constinit thread_local Index3 threadIdx{}, blockIdx{}, gridDim{};

namespace cukiln::emulator {

constinit thread_local Thread* self = nullptr;

[[noreturn]] [[gnu::format(printf, 1, 2)]] void fault(const char* format, ...) {
  std::fprintf(stderr, "emulator: ");
  if (self != nullptr) {
    std::fprintf(stderr, "cta %u, thread %u: ", blockIdx.x, self->index);
  }
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::fflush(stderr);
  _exit(2);
}

void expect_fenced_loads() {
  if (self->unfenced_loads) {
    fault("an arrival after loads of tensor memory, without tcgen05_fence_before_sync");
  }
}

void step() { self->cta->cluster->steps.fetch_add(1, std::memory_order_relaxed); }

void futex_wait(const void* word, u32 value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake_all(const void* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
}

void wait_for(const void* what, const void* word, IsOver over, u64 argument) {
  step();
  Wait& wait = self->wait;
  wait.argument.store(argument, std::memory_order_relaxed);
  wait.over.store(over, std::memory_order_relaxed);
  wait.what.store(what, std::memory_order_relaxed);
  for (;;) {
    const u32 now = __atomic_load_n(static_cast<const u32*>(word), __ATOMIC_RELAXED);
    if (over(what, argument, std::memory_order_acquire)) {
      break;
    }
    futex_wait(word, now);
  }
  wait.what.store(nullptr, std::memory_order_relaxed);
  self->after_fence = false;
}

namespace {

bool generation_over(const void* what, u64 generation, std::memory_order order) {
  return static_cast<const ThreadBarrier*>(what)->generation.load(order) != generation;
}

// Returns the generation that a wait is for. Without `releases` it orders nothing.
u32 arrive(ThreadBarrier& at, u32 expected, bool releases = true) {
  const u32 generation = at.generation.load(std::memory_order_relaxed);
  const auto order = releases ? std::memory_order_acq_rel : std::memory_order_relaxed;
  if (at.arrived.fetch_add(1, order) + 1 == expected) {
    at.arrived.store(0, std::memory_order_relaxed);
    at.generation.fetch_add(1, order);
    futex_wake_all(&at.generation);
  }
  return generation;
}

void wait_at(const ThreadBarrier& at, u32 generation) {
  wait_for(&at, &at.generation, generation_over, generation);
}

void arrive_and_wait(ThreadBarrier& at) { wait_at(at, arrive(at, at.expected)); }

bool phase_over(const void* what, u64 parity, std::memory_order order) {
  return static_cast<const Mbarrier*>(what)->word.load(order) >> 63 != parity;
}

std::string waits_of(const Cluster& cluster) {
  std::string text;
  for (const auto& cta : cluster.ctas) {
    for (u32 i = 0; i < cta->all.expected; i += 1) {
      const void* what = cta->threads[i].wait.what.load(std::memory_order_relaxed);
      const auto* barrier = static_cast<const Mbarrier*>(what);
      if (cta->threads[i].ended || barrier < cta->barriers.get() ||
          barrier >= cta->barriers.get() + kMaxSharedBytes / 8) {
        continue;
      }
      char line[128];
      const u64 word = barrier->word.load(std::memory_order_relaxed);
      std::snprintf(line, sizeof line, "; rank %u thread %u waits at +%td (%llu pending, %d bytes)",
                    cta->rank, i, (barrier - cta->barriers.get()) * 8, word << 1 >> 33,
                    static_cast<int>(word));
      text += line;
      i |= 31;  // one thread of each warp is enough
    }
  }
  return text;
}

}  // namespace

bool ended_or_waits(const Thread& thread) {
  if (thread.ended.load(std::memory_order_relaxed)) {
    return true;
  }
  const void* what = thread.wait.what.load(std::memory_order_relaxed);
  return what != nullptr &&
         !thread.wait.over.load(std::memory_order_relaxed)(
             what, thread.wait.argument.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

bool all_wait(const Cluster& cluster) {
  bool any = false;
  for (const auto& cta : cluster.ctas) {
    for (u32 i = 0; i < cta->all.expected; ++i) {
      const Thread& thread = cta->threads[i];
      if (!ended_or_waits(thread)) {
        return false;
      }
      any = any || !thread.ended.load(std::memory_order_relaxed);
    }
  }
  return any;
}

u8* shared_bytes(Cta& cta, u32 offset, u32 bytes, const char* what) {
  if (offset + u64{bytes} > cta.shared_bytes) {
    fault("%s: shared memory at +%u, %u bytes, exceeds the CTA's %u", what, offset, bytes,
          cta.shared_bytes);
  }
  return cta.shared + offset;
}

Cta& cta_of(u32 address) {
  const u32 rank = address >> kRankShift;
  if (rank >= self->cta->cluster->ctas.size()) {
    fault("address %08x is of rank %u, the cluster has %zu", address, rank,
          self->cta->cluster->ctas.size());
  }
  return *self->cta->cluster->ctas[rank];
}

Mbarrier& mbarrier_at(u32 address, bool of_any_rank) {
  Cta& cta = cta_of(address);
  const u32 offset = address & kOffsetMask;
  if (&cta != self->cta && !of_any_rank) {
    fault("an mbarrier of rank %u is used by rank %u", cta.rank, self->cta->rank);
  }
  if (offset % 8 != 0 || offset >= cta.shared_bytes || cta.barriers[offset / 8].arrivals() == 0) {
    fault("no mbarrier at %08x", address);
  }
  return cta.barriers[offset / 8];
}

Mbarrier& async_mbarrier_at(u32 address, bool of_any_rank) {
  Mbarrier& barrier = mbarrier_at(address, of_any_rank);
  if (!barrier.fenced.load(std::memory_order_relaxed)) {
    fault("the mbarrier at %08x is used by TMA or an MMA, without mbarrier_init_fence", address);
  }
  return barrier;
}

void update(Mbarrier& barrier, u32 arrivals, std::int32_t bytes) {
  u64 was = barrier.word.load(std::memory_order_relaxed);
  for (;;) {
    const u32 pending = static_cast<u32>(was << 1 >> 33);
    if (arrivals > pending) {
      fault("more arrivals at an mbarrier than the %u of its phase", barrier.arrivals());
    }
    const auto left = static_cast<u32>(static_cast<std::int32_t>(was) + bytes);
    const bool ends = pending == arrivals && left == 0;
    const u64 phase = was >> 63 ^ static_cast<u64>(ends);
    const u64 now = phase << 63 | u64{ends ? barrier.arrivals() : pending - arrivals} << 32 | left;
    if (barrier.word.compare_exchange_weak(was, now, std::memory_order_release,
                                           std::memory_order_relaxed)) {
      if (ends) {
        futex_wake_all(barrier.upper());
      }
      return;
    }
  }
}

float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }

TensorMap encode(const Map& map) {
  TensorMap tensor{};
  std::memcpy(&tensor, &map, sizeof map);
  return tensor;
}

Cta::Cta() = default;
Cta::~Cta() = default;

std::vector<const AsyncUnit*> Cluster::units() const {
  std::vector<const AsyncUnit*> found{tma.get()};
  for (const auto& cta : ctas) {
    found.push_back(cta->tensor_core.get());
  }
  return found;
}

namespace {

std::unique_ptr<Cta> make_cta(Cluster& cluster, u32 rank, const Grid& grid) {
  auto cta = std::make_unique<Cta>();
  cta->cluster = &cluster;
  cta->rank = rank;
  cta->shared_bytes = grid.shared_bytes;
  cta->has_tmem = grid.has_tmem;
  cta->memory = std::make_unique<u8[]>(kMaxSharedBytes + 1024);
  cta->shared = reinterpret_cast<u8*>((reinterpret_cast<std::uintptr_t>(cta->memory.get()) + 1023) /
                                      1024 * 1024);
  std::memset(cta->shared, 0xFF, kMaxSharedBytes);
  cta->tmem = std::make_unique<u32[]>(std::size_t{kLanes} * kTmemColumns);
  std::fill_n(cta->tmem.get(), kLanes * kTmemColumns, kPoison);
  cta->barriers = std::make_unique<Mbarrier[]>(kMaxSharedBytes / 8);
  cta->all.expected = grid.threads;
  cta->running = grid.threads;
  cta->warps = std::make_unique<ThreadBarrier[]>(grid.threads / 32);
  cta->threads = std::make_unique<Thread[]>(grid.threads);
  for (u32 i = 0; i < grid.threads; ++i) {
    cta->warps[i / 32].expected = 32;
    cta->threads[i].cta = cta.get();
    cta->threads[i].index = i;
  }
  return cta;
}

// Ends the preceding kernel once no thread goes on without it, and faults once none ever will.
void watch_for_ends(Cluster& cluster, const std::atomic<bool>& done) {
  using std::chrono::milliseconds;
  for (u32 stuck = 0; !done;) {
    const bool ended = cluster.preceding_ended.load(std::memory_order_relaxed) != 0;
    const auto units = cluster.units();
    const bool all_stuck = std::none_of(units.begin(), units.end(),
                                        [](const AsyncUnit* unit) { return unit->pending(); }) &&
                           all_wait(cluster);
    stuck = all_stuck ? stuck + 1 : 0;
    if (stuck == 3 && !ended) {
      end_preceding(cluster);
      stuck = 0;
    } else if (stuck == 3) {
      fault("deadlock%s", waits_of(cluster).c_str());
    }
    std::this_thread::sleep_for(ended ? milliseconds(20) : milliseconds(1));
  }
}

}  // namespace

/// `launch`, for a program that opens a library with an emulator of its own.
extern "C" [[gnu::visibility("default")]] void launch_emulated(const Grid& grid,
                                                               const std::function<void()>& body);
void launch_emulated(const Grid& grid, const std::function<void()>& body) { launch(grid, body); }

u32 launch(const Grid& grid, const std::function<void()>& body) {
  u32 early_loads = 0;
  for (u32 started = 0; started < grid.ctas; started += grid.cluster) {
    const u32 first = grid.seed % 2 == 0 ? started : grid.ctas - grid.cluster - started;
    Cluster cluster;
    cluster.all.expected = grid.cluster * grid.threads;
    cluster.late_mbarriers = grid.seed % 4 == 2;
    for (u32 rank = 0; rank < grid.cluster; ++rank) {
      cluster.ctas.push_back(make_cta(cluster, rank, grid));
    }
    cluster.tma = std::make_unique<AsyncUnit>(cluster, AsyncUnit::Order::any, grid.seed);
    for (const auto& cta : cluster.ctas) {
      cta->tensor_core =
          std::make_unique<AsyncUnit>(cluster, AsyncUnit::Order::in_order, grid.seed);
    }
    begin_preceding(cluster, grid.preceding.empty() ? nullptr : &grid);
    std::vector<std::thread> running;
    for (auto& cta : cluster.ctas) {
      for (u32 i = 0; i < grid.threads; ++i) {
        running.emplace_back([&, i, &cta = *cta] {
          self = &cta.threads[i];
          threadIdx = {i, 0, 0};
          blockIdx = {first + cta.rank, 0, 0};
          gridDim = {grid.ctas, 1, 1};
          body();
          if (!self->groups.empty() || !self->group.empty()) {
            fault("a CTA ends before its TMA stores have read shared memory");
          }
          // Shared memory is another CTA's when the last thread has ended.
          if (cta.running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            std::memset(cta.shared, 0xFF, cta.shared_bytes);
          }
          self->ended.store(true);
        });
      }
    }
    std::atomic<bool> done{false};
    std::thread watch([&] { watch_for_ends(cluster, done); });
    for (std::thread& thread : running) {
      thread.join();
    }
    done = true;
    watch.join();
    end_preceding(cluster);
    early_loads += cluster.early_loads;
    u32 left = 0;
    for (const AsyncUnit* unit : cluster.units()) {
      left += unit->left();
    }
    if (left != 0) {
      fault("a cluster ends while %u of its loads, MMAs, commits and arrivals are not complete",
            left);
    }
    cluster.tma.reset();
    for (const auto& cta : cluster.ctas) {
      cta->tensor_core.reset();
    }
    for (const auto& cta : cluster.ctas) {
      if (cta->allocated) {
        fault("a CTA ends with tensor memory allocated");
      }
      if (!cta->launched_dependents) {
        fault("a CTA ends without having launched its dependents");
      }
      for (u32 i = 0; i < kMaxSharedBytes / 8; ++i) {
        const Mbarrier& barrier = cta->barriers[i];
        if (barrier.arrivals() != 0 && barrier.word.load() << 1 != u64{barrier.arrivals()} << 33) {
          fault("the mbarrier at +%u is left in the middle of a phase", i * 8);
        }
      }
    }
  }
  return early_loads;
}

}  // namespace cukiln::emulator

namespace cukiln {

using namespace emulator;

u8* dynamic_shared_memory() { return self->cta->shared; }

u32 shared_address(const void* pointer) {
  const auto offset = static_cast<const u8*>(pointer) - self->cta->shared;
  if (offset < 0 || offset >= self->cta->shared_bytes) {
    fault("an address that is not in this CTA's shared memory");
  }
  return self->cta->rank << kRankShift | static_cast<u32>(offset);
}

bool elect_one_sync() { return self->index % 32 == 0; }
u32 block_rank_in_cluster() { return self->cta->rank; }
u32 cluster_size() { return static_cast<u32>(self->cta->cluster->ctas.size()); }
u32 address_in_rank(u32 shared, u32 rank) { return (shared & kOffsetMask) | rank << kRankShift; }
static void arrive_at_cluster(bool releases) {
  step();
  expect_fenced_loads();
  if (releases) {  // what this thread did in other CTAs comes before
    const auto none_left = [](const void* what, u64, std::memory_order order) {
      return static_cast<const std::atomic<u32>*>(what)->load(order) == 0;
    };
    wait_for(&self->arrivals_left, &self->arrivals_left, none_left, 0);
  }
  if (self->arrived) {
    fault("barrier.cluster.arrive: the thread has not waited since it arrived");
  }
  self->arrived = true;
  ThreadBarrier& all = self->cta->cluster->all;
  self->generation = arrive(all, all.expected, releases);
}
void cluster_arrive() { arrive_at_cluster(true); }
void cluster_arrive_relaxed() {
  // Only store_dsmem_async acquires this.
  self->cta->cluster->relaxed_arrivals.fetch_add(1, std::memory_order_release);
  arrive_at_cluster(false);
}
void cluster_wait() {
  if (!self->arrived) {
    fault("barrier.cluster.wait: the thread has not arrived");
  }
  self->arrived = false;
  wait_at(self->cta->cluster->all, self->generation);
}
void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

void emulator::named_barrier(u32 id, u32 threads, bool waits) {
  step();
  if (self->unfenced_loads) {
    fault("an arrival after loads of tensor memory, without tcgen05_fence_before_sync");
  }
  if (id == 0 || id >= self->cta->named.size() || threads % 32 != 0 ||
      threads > self->cta->all.expected) {
    fault("named barrier %u of %u threads", id, threads);
  }
  // The hardware counts warps: a warp arrives with its last thread. That orders nothing.
  const bool fenced = self->after_fence;
  ThreadBarrier& warp = self->cta->warps[self->index / 32];
  wait_at(warp, arrive(warp, warp.expected, false));
  self->after_fence = fenced;
  ThreadBarrier& at = self->cta->named[id];
  const u32 generation = arrive(at, threads);
  if (waits) {
    wait_at(at, generation);
  }
}

void store_dsmem_async(u32 address, u32 barrier, const float4& value) {
  Cta& there = cta_of(address);
  if (address % sizeof value != 0 || &cta_of(barrier) != &there) {
    fault("store_dsmem_async: %08x with the mbarrier %08x", address, barrier);
  }
  Mbarrier& done = mbarrier_at(barrier, true);
  Cluster& cluster = *self->cta->cluster;
  // What all had read when they arrived at a relaxed barrier that this thread has waited for.
  cluster.relaxed_arrivals.load(std::memory_order_acquire);
  cluster.tma->issue([&there, address, &done, value] {
    expect_no_loads(there, address & kOffsetMask, sizeof value, "store_dsmem_async");
    u8* const to = shared_bytes(there, address & kOffsetMask, sizeof value, "store_dsmem_async");
    std::memcpy(to, &value, sizeof value);
    update(done, 0, -static_cast<std::int32_t>(sizeof value));
  });
}

// An mbarrier is made as late as may be: once every other thread of the CTA waits, has ended or is
// here too, with some seeds after the preceding kernel. A thread that uses it without having waited
// for its maker then finds none, however threads are scheduled.
static void let_others_go_on() {
  if (self->cta->cluster->late_mbarriers) {
    wait_for_preceding();
  }
  self->makes_mbarrier.store(true, std::memory_order_relaxed);
  const auto cannot_go_on = [](const Thread& thread) {
    return thread.makes_mbarrier.load(std::memory_order_relaxed) || ended_or_waits(thread);
  };
  const Thread* const threads = self->cta->threads.get();
  while (!std::all_of(threads, threads + self->cta->all.expected, cannot_go_on)) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  self->makes_mbarrier.store(false, std::memory_order_relaxed);
}

void mbarrier_init(u32 barrier, u32 arrivals) {
  if (barrier % 8 != 0 || (barrier & kOffsetMask) >= self->cta->shared_bytes) {
    fault("an mbarrier at %08x", barrier);
  }
  let_others_go_on();
  Mbarrier& made = self->cta->barriers[(barrier & kOffsetMask) / 8];
  made.phase_arrivals.store(arrivals, std::memory_order_relaxed);
  made.word.store(u64{arrivals} << 32, std::memory_order_relaxed);
  made.fenced.store(false, std::memory_order_relaxed);
  self->initialised.push_back(&made);
}

void mbarrier_init_fence() {
  for (Mbarrier* const barrier : self->initialised) {
    barrier->fenced.store(true, std::memory_order_relaxed);
  }
  self->initialised.clear();
}

void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
  step();
  update(mbarrier_at(barrier, false), 1, static_cast<std::int32_t>(bytes));
}

void mbarrier_arrive(u32 barrier) {
  step();
  if (!self->loads.empty()) {
    const std::lock_guard lock(self->cta->loads_mutex);
    for (SharedLoad& load : self->loads) load.released = true;
  }
  expect_fenced_loads();
  Mbarrier& at = mbarrier_at(barrier, true);
  // At another CTA's barrier it comes late; one of each warp is enough, so that few runs wait for
  // the last operations of all.
  if (&cta_of(barrier) == self->cta || self->index % 32 != 0) {
    update(at, 1, 0);
    return;
  }
  self->arrivals_left.fetch_add(1, std::memory_order_relaxed);
  self->cta->cluster->tma->issue([&at, &by = *self] {
    update(at, 1, 0);
    by.arrivals_left.fetch_sub(1, std::memory_order_relaxed);
    futex_wake_all(&by.arrivals_left);
  });
}

void mbarrier_wait(u32 barrier, u32 parity) {
  const Mbarrier& waited = mbarrier_at(barrier, false);
  wait_for(&waited, waited.upper(), phase_over, parity);
}

}  // namespace cukiln

void __syncthreads() {
  cukiln::emulator::expect_fenced_loads();
  cukiln::emulator::arrive_and_wait(cukiln::emulator::self->cta->all);
}
void __syncwarp() {
  using cukiln::emulator::self;
  const bool fenced = self->after_fence;  // tensor memory is not ordered by it
  cukiln::emulator::arrive_and_wait(self->cta->warps[self->index / 32]);
  self->after_fence = fenced;
}
