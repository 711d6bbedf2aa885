// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/zeroed_workspaces.hpp"

#include <fmt/format.h>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "nvfp4/torch/cuda.hpp"

namespace cukiln::torch {

namespace {

constexpr std::size_t kSlotsAtOnce = 32;

/// Until it is destroyed, this thread may allocate and synchronise while any thread captures.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) noexcept : driver_(driver) {
    changed_ = driver.cuThreadExchangeStreamCaptureMode(&mode_) == Driver::kSuccess;
  }
  ~RelaxedCapture() {
    if (changed_) {
      driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = Driver::kCaptureModeRelaxed;
  bool changed_ = false;
};

/// By a stream of its own: the legacy one is refused while a stream that waits for it captures.
Driver::CUresult zero_memory(const Driver& driver, void* memory, std::size_t bytes) {
  Stream stream = nullptr;
  Driver::CUresult result = driver.cuStreamCreate(&stream, Driver::kStreamNonBlocking);
  if (result != Driver::kSuccess) {
    return result;
  }
  result = driver.cuMemsetD8Async(memory, 0, bytes, stream);
  if (result == Driver::kSuccess) {
    result = driver.cuStreamSynchronize(stream);
  }
  driver.cuStreamDestroy(stream);
  return result;
}

/// Has `graph` set `taken` to false when it, and all that was instantiated from it, are destroyed.
Result<void> untake_with(const Driver& driver, Driver::CUgraph graph, std::atomic<bool>& taken) {
  // Called on a thread of the driver's, or in a call that destroys a graph: it takes no lock.
  const auto untake = [](void* flag) {
    static_cast<std::atomic<bool>*>(flag)->store(false, std::memory_order_release);
  };
  Driver::CUuserObject object = nullptr;
  if (const auto result =
          driver.cuUserObjectCreate(&object, &taken, untake, 1, Driver::kNoDestructorSync);
      result != Driver::kSuccess) {
    untake(&taken);
    return driver.error("cuUserObjectCreate", result);
  }
  if (const auto result = driver.cuGraphRetainUserObject(graph, object, 1, Driver::kMoveUserObject);
      result != Driver::kSuccess) {
    driver.cuUserObjectRelease(object, 1);
    return driver.error("cuGraphRetainUserObject", result);
  }
  return {};
}

}  // namespace

ZeroedWorkspaces::ZeroedWorkspaces(std::size_t bytes) noexcept
    : bytes_((bytes + 255) / 256 * 256) {}

Result<nvfp4::Workspace> ZeroedWorkspaces::get(const Driver& driver, Stream stream) {
  int status = Driver::kCaptureNone;
  std::uint64_t capture = 0;
  Driver::CUgraph graph = nullptr;
  auto result = driver.cuStreamGetCaptureInfo(stream, &status, &capture, &graph, nullptr, nullptr);
  if (result == Driver::kSuccess && status == Driver::kCaptureInvalidated) {
    result = Driver::kCaptureIsInvalid;
  }
  if (result != Driver::kSuccess) {
    return driver.error("cuStreamGetCaptureInfo", result);
  }
  // The next stream may have this one's handle while kernels of this one still run, so its id
  // counts. A stream that captures has none to ask for, and keeps its handle until the capture
  // ends.
  const bool captured = status != Driver::kCaptureNone;
  std::uint64_t id = reinterpret_cast<std::uintptr_t>(stream);
  if (!captured) {
    result = driver.cuStreamGetId(stream, &id);
    if (result != Driver::kSuccess) {
      return driver.error("cuStreamGetId", result);
    }
  }
  const Use use(captured, captured ? capture : 0, id);

  const ForkSafeLock lock(mutex_);
  if (const auto found = by_use_.find(use); found != by_use_.end()) {
    return nvfp4::Workspace{found->second->memory, bytes_};
  }
  CUKILN_TRY(Slot* const slot, free_slot(driver));
  slot->taken.store(true, std::memory_order_relaxed);
  if (captured) {
    CUKILN_CHECK(untake_with(driver, graph, slot->taken));
  }
  slot->use = use;
  by_use_.emplace(use, slot);
  return nvfp4::Workspace{slot->memory, bytes_};
}

Result<ZeroedWorkspaces::Slot*> ZeroedWorkspaces::free_slot(const Driver& driver) {
  for (Slot& slot : slots_) {
    if (!slot.taken.load(std::memory_order_acquire)) {
      if (const auto old = by_use_.find(slot.use); old != by_use_.end() && old->second == &slot) {
        by_use_.erase(old);
      }
      return &slot;
    }
  }
  CUKILN_CHECK(allocate(driver));
  return &slots_[slots_.size() - kSlotsAtOnce];
}

Result<void> ZeroedWorkspaces::allocate(const Driver& driver) {
  const RelaxedCapture relaxed(driver);
  const std::size_t bytes = kSlotsAtOnce * bytes_;
  void* memory = nullptr;
  if (const auto result = driver.cuMemAlloc(&memory, bytes); result != Driver::kSuccess) {
    return driver.error(fmt::format("cuMemAlloc({} bytes)", bytes), result);
  }
  if (const auto result = zero_memory(driver, memory, bytes); result != Driver::kSuccess) {
    driver.cuMemFree(memory);
    return driver.error("zeroing a workspace", result);
  }
  for (std::size_t i = 0; i < kSlotsAtOnce; ++i) {
    slots_.emplace_back().memory = static_cast<std::byte*>(memory) + i * bytes_;
  }
  return {};
}

}  // namespace cukiln::torch
