// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the sampling kernels take from the CUDA language and from PTX beside device.hpp. Sums that
// several threads add to come out in one order here, and in any on a GPU.

#define __shared__ SHARED_IN_CLUSTER
#include "device.hpp"

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline void __threadfence() {}
inline unsigned __activemask() { return 0; }
// The threads of a warp that are in the same place, which is this one alone: they run in turn.
inline unsigned __match_any_sync(unsigned, unsigned) { return 1u << threadIdx.x % device::kWarp; }
template <class T>
T __shfl_sync(unsigned, T value, unsigned lane) {
  return device::among_lanes(value, [&](const auto* lanes) { return lanes[lane]; });
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  return device::among_lanes(
      value, [](const auto* lanes) { return *std::min_element(lanes, lanes + device::kWarp); });
}
inline unsigned __syncthreads_count(bool vote) {
  device::exchanged[device::running] = vote;
  __syncthreads();
  const auto* const first =
      &device::exchanged[device::running / device::block_threads * device::block_threads];
  const auto count = std::count(first, first + device::block_threads, 1u);
  __syncthreads();
  return static_cast<unsigned>(count);
}

template <class T>
void atomicMin(T* at, T value) {
  *at = std::min(*at, value);
}
template <class T>
void atomicMax(T* at, T value) {
  *at = std::max(*at, value);
}
inline unsigned atomicInc(unsigned* at, unsigned largest) {
  const unsigned before = *at;
  *at = before >= largest ? 0 : before + 1;
  return before;
}

inline unsigned long long __cvta_generic_to_shared(const void* variable) {
  return reinterpret_cast<unsigned long long>(variable);
}

namespace device {

// A transaction barrier that one arrival and the bytes that it expects complete.
struct Mbarrier {
  std::int32_t missing_bytes;
  std::uint16_t missing_arrivals;
  std::uint16_t phase;

  void end_phase_if_complete() {
    if (missing_arrivals != 0 || missing_bytes != 0) return;
    missing_arrivals = 1;
    ++phase;
  }
};

inline Mbarrier& mbarrier_at(unsigned long long address) {
  return *reinterpret_cast<Mbarrier*>(address);
}

template <class T>
void store_and_complete(unsigned long long address, const T& value, unsigned long long barrier) {
  *reinterpret_cast<T*>(address) = value;
  mbarrier_at(barrier).missing_bytes -= static_cast<std::int32_t>(sizeof(T));
  mbarrier_at(barrier).end_phase_if_complete();
}

}  // namespace device

namespace ptx {

namespace mbarrier_init_shared {
inline void cta_b64(unsigned long long barrier, std::uint16_t arrivals) {
  device::mbarrier_at(barrier) = {0, arrivals, 0};
}
}  // namespace mbarrier_init_shared
inline void fence_mbarrier_init_release_cluster() {}
namespace mbarrier_arrive_expect_tx_shared {
inline void cta_b64(unsigned long long barrier, unsigned bytes) {
  device::mbarrier_at(barrier).missing_bytes += static_cast<std::int32_t>(bytes);
  --device::mbarrier_at(barrier).missing_arrivals;
  device::mbarrier_at(barrier).end_phase_if_complete();
}
}  // namespace mbarrier_arrive_expect_tx_shared
namespace mbarrier_try_wait_parity_shared {
inline bool cta_b64(unsigned long long barrier, unsigned parity) {
  if (device::mbarrier_at(barrier).phase % 2 != parity) return true;
  swapcontext(&device::threads[device::running].context, &device::scheduler);  // others run
  return false;
}
}  // namespace mbarrier_try_wait_parity_shared
inline unsigned selp_u32(unsigned a, unsigned b, bool condition) { return condition ? a : b; }
namespace st_async_shared::cluster_mbarrier::complete_tx {
inline void bytes_b64(unsigned long long address, unsigned long long value,
                      unsigned long long barrier) {
  device::store_and_complete(address, value, barrier);
}
inline void bytes_v4_b32(unsigned long long address, unsigned x, unsigned y, unsigned z, unsigned w,
                         unsigned long long barrier) {
  device::store_and_complete(address, uint4{x, y, z, w}, barrier);
}
}  // namespace st_async_shared::cluster_mbarrier::complete_tx

inline void barrier_cluster_arrive_release() {
  device::arrivals[device::running] = device::cluster.round;
  device::arrive(device::cluster);
}
inline void barrier_cluster_arrive_relaxed() { barrier_cluster_arrive_release(); }
inline void barrier_cluster_wait_acquire() {
  device::wait_for_end(device::cluster, device::arrivals[device::running]);
}
inline unsigned long long mapa_u64(void* variable, unsigned rank) {
  char* const here = static_cast<char*>(variable);
  const bool is_own = rank == device::running / device::block_threads;
  char* const there = device::aside[rank].data() + (here - device::shared_variables);
  return reinterpret_cast<unsigned long long>(is_own ? here : there);
}

// L1::no_allocate
namespace ld_global_nc_L1 {
inline unsigned no_allocate_v2_u32(unsigned& y, const uint2* at) {
  y = at->y;
  return at->x;
}
inline unsigned no_allocate_v4_u32(unsigned& y, unsigned& z, unsigned& w, const uint4* at) {
  y = at->y;
  z = at->z;
  w = at->w;
  return at->x;
}
}  // namespace ld_global_nc_L1

inline float sub_rn_f32(float a, float b) { return a - b; }
inline float max_f32(float a, float b) { return std::fmax(a, b); }
inline float min_f32(float a, float b) { return std::fmin(a, b); }
inline float lg2_approx_ftz_f32(float a) { return flushed(std::log2(flushed(a))); }
inline float cvt_rn_f32_u64(unsigned long long a) { return static_cast<float>(a); }
inline unsigned cvt_rzi_u32_f32(float a) {
  if (!(a > 0)) return 0;
  return a >= 0x1p32f ? ~0u : static_cast<unsigned>(a);
}
inline unsigned long long cvt_rzi_u64_f32(float a) {
  if (!(a > 0)) return 0;
  return a >= 0x1p64f ? ~0ull : static_cast<unsigned long long>(a);
}

}  // namespace ptx
