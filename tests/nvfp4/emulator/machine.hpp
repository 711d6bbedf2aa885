// SPDX-License-Identifier: Apache-2.0
#pragma once

// machine.cuh and cluster.cuh on a CPU; emulator.cpp holds what these do.

namespace cukiln {

u8* dynamic_shared_memory();
u32 shared_address(const void* pointer);
bool elect_one_sync();
u32 block_rank_in_cluster();
u32 cluster_size();
u32 address_in_rank(u32 shared, u32 rank);
void cluster_sync();
void cluster_arrive();
void cluster_arrive_relaxed();
void cluster_wait();
void store_dsmem_async(u32 address, u32 barrier, const float4& value);

void griddepcontrol_wait();
void griddepcontrol_launch_dependents();
inline void prefetch_tensormap(const TensorMap*) {}
inline void prefetch_l2(const void*) {}

namespace emulator {
void named_barrier(u32 id, u32 threads, bool waits);
}
template <u32 kThreads>
void named_barrier_sync(u32 id) {
  emulator::named_barrier(id, kThreads, true);
}
template <u32 kThreads>
void named_barrier_arrive(u32 id) {
  emulator::named_barrier(id, kThreads, false);
}

void mbarrier_init(u32 barrier, u32 arrivals);
void mbarrier_init_fence();
void mbarrier_arrive_expect(u32 barrier, u32 bytes);
void mbarrier_arrive(u32 barrier);
void mbarrier_wait(u32 barrier, u32 parity);

namespace emulator {
void load(u32 ctas, u32 destination, const TensorMap* map, u32 rank, const u32 (&at)[3],
          u32 barrier);
void load_multicast(u32 destination, const TensorMap* map, u32 rank, const u32 (&at)[3],
                    u32 barrier, u32 mask);
void store(const TensorMap* map, const u32 (&at)[3], u32 source);
void store_wait(u32 pending);
float multiply_add(float a, float b, float c);
}  // namespace emulator

template <u32 kCtas>
void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y, u32 barrier) {
  emulator::load(kCtas, destination, map, 2, {x, y, 0}, barrier);
}
template <u32 kCtas>
void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y, u32 z, u32 barrier) {
  emulator::load(kCtas, destination, map, 3, {x, y, z}, barrier);
}

inline void tma_load_multicast(u32 destination, const TensorMap* map, u32 x, u32 y, u32 barrier,
                               u32 ctas) {
  emulator::load_multicast(destination, map, 2, {x, y, 0}, barrier, ctas);
}
inline void tma_load_multicast(u32 destination, const TensorMap* map, u32 x, u32 y, u32 z,
                               u32 barrier, u32 ctas) {
  emulator::load_multicast(destination, map, 3, {x, y, z}, barrier, ctas);
}

inline void tma_store(const TensorMap* map, u32 x, u32 y, u32 source) {
  emulator::store(map, {x, y, 0}, source);
}
void tma_store_commit();
template <u32 kPending>
void tma_store_wait_read() {
  emulator::store_wait(kPending);
}
void async_proxy_fence();

inline void atomic_max(u32* at, u32 value) {
  u32 before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (before < value && !__atomic_compare_exchange_n(at, &before, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
  }
}
inline u32 atomic_add_acq_rel(u32* at, u32 value) {
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

inline float fma_rn(float a, float b, float c) { return emulator::multiply_add(a, b, c); }

inline u32 bf16_rn(float value) {
  const u32 bits = __builtin_bit_cast(u32, value);
  return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline u32 bf16x2_rn(float low, float high) { return bf16_rn(low) | bf16_rn(high) << 16; }

}  // namespace cukiln
