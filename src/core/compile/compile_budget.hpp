// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/cancel_flags.hpp"
#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// How much compiles of one process may take together: settings, or what the machine and its
/// cgroups have (base/machine.hpp). It limits memory: a compile that would not fit waits until
/// others have ended. The number of compiles is limited by those who start them, by `jobs`. One
/// budget serves all compilers of a loader or a daemon. A forked child has one of its own, all of
/// it free. Threads: safe.
class CompileBudget {
  struct State;

 public:
  struct Limits {
    unsigned jobs = 0;               ///< 0: one per core, as long as memory suffices
    std::uint64_t memory_bytes = 0;  ///< 0: what the machine and its cgroups have
  };

  /// What a compile is taken to need if nothing is known about it. Measured with NVRTC 13.0: 76 to
  /// 108 MiB for the shipped kernels, 288 MiB with CUB.
  static constexpr std::uint64_t kTypicalBytes = 512ull << 20;

  /// Measures nothing yet.
  explicit CompileBudget(Limits limits);
  ~CompileBudget();
  CompileBudget(const CompileBudget&) = delete;
  CompileBudget& operator=(const CompileBudget&) = delete;

  /// The number of concurrent compiles, at least one. The first call measures the machine.
  unsigned jobs();
  /// The number of workers to keep for the next compiles: as many as run concurrently, and fit.
  std::size_t workers_to_keep();
  /// Of all compiles together; 0: no limit is known. The first call measures the machine.
  std::uint64_t memory_bytes();
  /// Why `memory_bytes` is what it is: `CUKILN_MEMORY`, or as in Machine::memory_from.
  std::string memory_from();

  /// Memory that is set aside for one compile, until it is destroyed.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    friend class CompileBudget;
    Share(State& state, std::uint64_t bytes) noexcept : state_(&state), bytes_(bytes) {}
    State* state_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  /// Waits until `bytes` are free and all earlier callers have been served. If no compile is
  /// running, it does not wait, however little memory there is. `timeout` starts again whenever a
  /// compile ends. Errors: timeout, also when cancelled, with `label` in the message.
  Result<Share> admit(std::uint64_t bytes, const std::string& label,
                      std::chrono::milliseconds timeout, CancelFlags cancelled);

  /// The compiles that wait now.
  std::size_t waiting();

 private:
  State& state();

  const Limits limits_;
  const std::unique_ptr<ProcessLocal<State>> state_;
};

}  // namespace cukiln
