// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/event_queue.hpp"
#include "core/base/logger.hpp"
#include "core/base/nvtx.hpp"
#include "core/compile/compiler.hpp"
#include "core/loader/failure_memory.hpp"
#include "core/loader/in_flight.hpp"
#include "core/loader/loader_telemetry.hpp"
#include "core/loader/miss.hpp"
#include "core/loader/module_request.hpp"
#include "core/loader/phase_meter.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/daemon_tier.hpp"
#include "core/store/remote_tier.hpp"
#include "core/store/signers.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

class CompileBudget;

/// A cubin and how it was obtained.
struct Built {
  StoreEntry entry;
  Outcome outcome = Outcome::hit;
  std::string reason;
  std::optional<Error> not_stored;  ///< as in ModuleReport
  bool observed = true;             ///< as CompileResult
  bool uses_time = false;           ///< as CompileResult
};

/// Obtains the cubin of a request for the library: looks it up, and runs a CompilePipeline on a
/// miss. Joins store and compiler; knows no driver. Threads: safe, except for `set_remote`.
class Builder {
 public:
  struct Options {
    bool offline = false;
    std::chrono::milliseconds compile_timeout{300'000};
    std::string lock_folder;          ///< empty: single flight within this process only
    CompileBudget* budget = nullptr;  ///< for the sources of a module that links; null: one by one
    bool finds_toolkit = false;       ///< no setting names the folders of CUDA's headers
    DaemonTier* daemon = nullptr;     ///< looked up after the store; null: none
    RevokedKeys revoked_keys;         ///< entries that they signed are misses, and are removed
    KeyScopes key_scopes;             ///< so are entries that one of them signed for another module
    Logger log;
    const Nvtx* nvtx = nullptr;     ///< gets a range for each compile; null: no ranges
    EventQueue* events = nullptr;   ///< hits, misses and compiles; the caller delivers them
    std::function<void()> on_miss;  ///< called once a miss is counted, before its compile
  };
  /// The arguments must outlive the builder.
  Builder(ObjectTier& store, Compiler& compiler, StatCache& stats, LoaderTelemetry& telemetry,
          Options options);

  /// The result of a lookup: an entry, or the reason of the miss.
  struct Found {
    std::optional<StoreEntry> entry;
    Miss miss;
  };
  using Purpose = ObjectTier::Purpose;
  /// Looks up the stored entry whose dependency set holds for this host's files now. A store that
  /// fails is a logged, counted miss.
  Found look_up(const ModuleRequest& request, Purpose purpose = Purpose::use);

  using MayCompile = std::function<Result<void>(const Miss& miss)>;

  /// Returns what `look_up` found, or compiles. `may_compile` is called with the reason of the
  /// miss before a compile starts; its error (a sealed loader) is returned. `cancelled` is the
  /// call's own flag and may be null. `failure` gets what NVRTC said when it refuses; what it
  /// refuses of a program is then remembered in the store and not compiled again. Errors: the
  /// compiler's; not_found (offline); timeout (cancelled).
  Result<Built> build(const ModuleRequest& request, Found found, const MayCompile& may_compile = {},
                      const std::atomic<bool>* cancelled = nullptr, PhaseMeter* meter = nullptr,
                      NvrtcFailure* failure = nullptr);

  /// Sets the remote tier, which is asked before a compile. Call it before the first `build`. The
  /// tier must outlive the builder.
  void set_remote(RemoteTier* remote) noexcept { remote_ = remote; }
  RemoteTier* remote() const noexcept { return remote_; }  ///< null in hosts

  /// Makes compiles, those in progress included, return `timeout` until `resume()`.
  void cancel() noexcept { cancelled_.store(true); }
  void resume() noexcept { cancelled_.store(false); }

 private:
  class PipelineCaller;

  /// Why the signers of a stored entry make it a miss; empty if they do not.
  std::optional<Miss::Why> refusal_of_signers(const StoreEntry& entry,
                                              const ModuleRequest& request) const;
  template <class Complete>
  void add_event(EventKind kind, const ModuleRequest& request, const Complete& complete);
  /// Returns the error of a failure that is remembered and holds for this host's files now.
  std::optional<Error> recall(const ModuleRequest& request, NvrtcFailure& failure);
  Built hit(const ModuleRequest& request, StoreEntry entry, const char* reason, bool saves = true);
  void probe(bool in_daemon, const ModuleRequest& request, Purpose purpose,
             std::unique_ptr<FileServer>& files, Found& found);

  ObjectTier& store_;
  Compiler& compiler_;
  StatCache& stats_;
  LoaderTelemetry& telemetry_;
  const Options options_;
  RemoteTier* remote_ = nullptr;
  std::atomic<bool> cancelled_{false};

  InFlight in_flight_;
  FailureMemory failures_;
};

}  // namespace cukiln
