// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs a kernel of machine.cuh and tcgen05.cuh on a CPU, one std::thread for each CUDA thread.
//
// What is modelled, each from the PTX ISA: shared memory by address, in clusters too; mbarriers
// with arrivals, bytes and phases; TMA with its swizzle, its zeroes beyond the tensor and its
// clipped stores, which read their source as late as allowed; tensor memory; MMAs and copies
// of scales from the bits of their descriptors. Shared and tensor memory begin as NaN. A kernel
// that breaks a rule, or whose threads deadlock, ends the process with an error message and code 2.
//
// Barriers and tensor memory must have the fences that show what was done to them to others, and an
// access of a kernel behind an argument in global memory breaks a rule.
//
// The preceding kernel of a programmatic launch ends as late as possible: once no thread can go on
// without griddepcontrol_wait. Until then its memory is protected, so that every access breaks a
// rule.
//
// A load of shared memory, where a kernel's test marks it (async_copy.hpp), may be in flight until
// the thread executes async_proxy_fence, before it arrives at an mbarrier: what TMA or another CTA
// writes there before breaks a rule.
//
// Loads, MMAs and commits are performed late, by threads of their own, after a random number of
// steps of the kernel's threads: loads and arrivals of commits in any order, MMAs and copies of
// scales in the order in which they were issued. What a kernel may only use after a wait is thus
// not there before it.
//
// A wait only acquires, and an arrival only releases: under ThreadSanitizer two accesses are
// ordered only if the kernel's own barriers order them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/cuda.hpp"  // first
#include "kernels_src/nvfp4/machine.cuh"

namespace cukiln::emulator {

/// The arguments of cuTensorMapEncodeTiled, stored in a kernel's TensorMap.
struct Map {
  std::uint8_t* data;
  std::uint32_t rank;
  std::uint32_t element_bytes;
  std::uint32_t swizzle_bytes;  // 0 or 128
  std::uint32_t box[3];
  std::uint64_t size[3];    // in elements, innermost first
  std::uint64_t stride[2];  // in bytes, of the second and third dimension
};
static_assert(sizeof(Map) <= sizeof(TensorMap));

TensorMap encode(const Map& map);

/// A copy of something at the end of pages of its own, of whole 16 bytes: an access behind it
/// breaks a rule.
class Pages {
 public:
  Pages(const void* from, std::size_t bytes);
  template <class T>
  explicit Pages(const std::vector<T>& from) : Pages(from.data(), from.size() * sizeof(T)) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  bool contains(const void* address) const;
  /// Allows accesses, or has each of them end in SIGSEGV.
  void allow(bool access) const;

 private:
  void* memory_;
  void* data_;         // in it
  std::size_t bytes_;  // of whole pages
};

struct Grid {
  std::uint32_t ctas;
  std::uint32_t cluster;  // CTAs in a cluster
  std::uint32_t threads;  // in a CTA
  std::uint32_t shared_bytes;
  std::uint32_t seed =
      1;  // of the delays; 0: none, loads and MMAs are performed when they are issued
  std::vector<const Pages*> preceding = {};  // what the preceding kernel reads and writes
  bool has_tmem = true;                      // the kernel allocates tensor memory
};

/// Runs `body` in every thread, one cluster after another: with an odd seed the last one first.
/// Returns how many TMA loads were issued before griddepcontrol_wait.
std::uint32_t launch(const Grid& grid, const std::function<void()>& body);

}  // namespace cukiln::emulator
