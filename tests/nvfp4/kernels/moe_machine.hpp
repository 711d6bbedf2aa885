// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of a mixture of experts for few tokens take from machine.cuh and
// dependent_launch.cuh, from clusters and from PTX beside device.hpp: CUKILN_MACHINE names this
// header.

#include <array>
#include <deque>

#include "device.hpp"  // first
#include "ptx_mma.hpp"

#include "types.cuh"

extern char __start_shared_memory[], __stop_shared_memory[];  // NOLINT: the linker's

namespace cukiln {

using ptx::griddepcontrol_launch_dependents;
using ptx::griddepcontrol_wait;
inline void prefetch_l2(const void* from) { ptx::prefetch_global_L2(from); }
inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(static_cast<const char*>(pointer) - __start_shared_memory);
}
inline u32 block_rank_in_cluster() { return device::running / device::block_threads; }
inline u32 cluster_size() { return static_cast<u32>(device::blocks.size()); }
inline void cluster_sync() { device::wait(device::cluster); }
inline float4 load_dsmem(u32 address, u32 rank) {
  const char* const memory =
      rank == block_rank_in_cluster() ? __start_shared_memory : device::aside[rank].data();
  float4 value;
  std::copy_n(memory + address, sizeof value, reinterpret_cast<char*>(&value));
  return value;
}

}  // namespace cukiln

namespace ptx {

// ---- cp.async: what was copied is there when a wait says so, and not before.

struct Copy {
  std::uint32_t to;
  const void* from;
  unsigned size;
  unsigned bytes;  // of `size`; zeros for the rest
};

struct Copies {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

inline std::vector<Copies> copies;  // of each thread of the cluster

inline Copies& own_copies() {
  if (copies.size() < device::threads.size()) copies.resize(device::threads.size());
  return copies[device::running];
}
template <class Size, class Bytes>
void cp_async(std::uint32_t to, const void* from, Size size, Bytes bytes) {
  own_copies().open.push_back(
      {to, from, static_cast<unsigned>(size), static_cast<unsigned>(bytes)});
}
template <class... Arguments>
void cp_async_cg_shared_global_L2_128B(Arguments... arguments) {
  cp_async(arguments...);
}
template <class... Arguments>
void cp_async_ca_shared_global(Arguments... arguments) {
  cp_async(arguments...);
}
inline void cp_async_commit_group() {
  own_copies().groups.push_back(std::move(own_copies().open));
  own_copies().open.clear();
}
inline void cp_async_wait_group(int left) {
  auto& groups = own_copies().groups;
  for (; groups.size() > static_cast<unsigned>(left); groups.pop_front()) {
    for (const Copy& copy : groups.front()) {
      std::fill_n(__start_shared_memory + copy.to, copy.size, '\0');
      std::copy_n(static_cast<const char*>(copy.from), copy.bytes, __start_shared_memory + copy.to);
    }
  }
}

// ---- mma.sync: lanes are never more than one ahead of each other, so that two sets of operands
// are enough.

inline std::array<std::vector<MmaOperands>, 2> operands;  // of each thread of the cluster
inline std::vector<unsigned> mma_count;

inline const MmaOperands* exchange_operands(const MmaOperands& own) {
  mma_count.resize(device::threads.size());
  auto& given = operands[mma_count[device::running]++ % 2];
  given.resize(device::threads.size());
  given[device::running] = own;
  device::wait(device::own_warp());
  return &given[device::running / device::kWarp * device::kWarp];
}

}  // namespace ptx
