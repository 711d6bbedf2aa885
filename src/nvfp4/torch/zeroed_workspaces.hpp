// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "core/base/mutex.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::torch {

class Driver;

/// Workspaces of one device for kernels that need zeros at first and leave zeros, as amax_gsa does:
/// zeroed once, when they are allocated. Launches that share one must not overlap. So each stream
/// has its own; and each stream of a capture, because the graph may be replayed beside other graphs
/// and other streams' calls. A captured graph's workspaces are used for others when it, and all
/// that was instantiated from it, are destroyed. A stream's are kept: a few KiB each.
/// Threads: any concurrently. Lives as long as every captured graph: to the end of the process.
class ZeroedWorkspaces {
 public:
  explicit ZeroedWorkspaces(std::size_t bytes) noexcept;

  /// For a launch on `stream`, of a device whose context is current. Errors: driver.
  Result<nvfp4::Workspace> get(const Driver& driver, Stream stream) CUKILN_EXCLUDES(mutex_);

 private:
  using Use = std::tuple<bool, std::uint64_t, std::uint64_t>;  // captured? capture, stream
  struct Slot {
    std::byte* memory = nullptr;
    Use use;
    std::atomic<bool> taken{false};
  };

  Result<Slot*> free_slot(const Driver& driver) CUKILN_REQUIRES(mutex_);
  Result<void> allocate(const Driver& driver) CUKILN_REQUIRES(mutex_);

  const std::size_t bytes_;
  Mutex mutex_;
  std::map<Use, Slot*> by_use_ CUKILN_GUARDED_BY(mutex_);
  std::deque<Slot> slots_ CUKILN_GUARDED_BY(mutex_);  // never moved
};

}  // namespace cukiln::torch
