// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/cancel_flags.hpp"
#include "core/base/logger.hpp"
#include "core/compile/compiler.hpp"
#include "core/key/set_check.hpp"
#include "core/loader/in_flight.hpp"
#include "core/loader/not_stored.hpp"
#include "core/loader/phase_meter.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_tier.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The steps from a request that the store does not have to its cubin: remote store, lease, parts
/// (of a link), lock, compile, verify, commit, upload. The library (`Builder`) and cukilnd
/// (`CompileRun`) both drive it. Lease, wait and in-flight record end with `run`, however it ends.
/// Serves one request, once. Threads: one.
class CompilePipeline {
 public:
  /// What differs between library and cukilnd.
  class Caller {
   public:
    virtual ~Caller() = default;

    /// Looks up again. True if the store has a result for the caller's files now.
    virtual bool look_up_again() = 0;
    /// Judges remote entries by the caller's files as they are now. Valid until the next call.
    virtual SetCheck& remote_check() = 0;
    /// Called once, when there is no result and before anything waits. An error ends the pipeline:
    /// the caller forbids the compile.
    virtual Result<void> admit() { return {}; }
    /// True if the compiler is another process that runs lease, lock and upload itself.
    virtual bool delegates() { return false; }
    virtual Result<Compiler*> compiler() = 0;
    /// The files for one attempt to compile. Valid until the next call.
    virtual FileSource files() = 0;
    /// The compiled sources of a request that links: each is found or compiled by a pipeline of its
    /// own. Called before the lock is taken, since a compile may wait for a lock of its own.
    virtual Result<LinkParts> parts();

    /// True if the headers of CUDA in a compile's dependency set are those that this process found
    /// by its own search, so that it may sign that they are (kOwnToolkit).
    virtual bool has_own_toolkit(const DependencySet& dependencies) {
      static_cast<void>(dependencies);
      return false;
    }

    // Events, for counters and logs.
    virtual void waited_for_thread() {}
    /// The first wait for another process. `holder`: the line in its lock; may be empty.
    virtual void waiting_for_process(const std::string& holder) { static_cast<void>(holder); }
    virtual void wait_timed_out(const std::string& holder) { static_cast<void>(holder); }
    virtual void compile_failed(const Error& error) { static_cast<void>(error); }
  };

  /// All of it outlives the pipeline.
  struct Options {
    const CompileRequest& request;
    const std::string& canonical;  ///< of the request
    const RequestDigest& digest;   ///< of the canonical bytes
    const std::string& label;      ///< the module's name, for errors and logs
    const EntryLabels& labels;
    ObjectTier& store;
    const std::string& lock_folder;  ///< empty: no lock between processes
    CancelFlags cancelled;
    const Logger& log;
    std::chrono::milliseconds timeout;  ///< of each wait, and of the compile
    RemoteTier* remote = nullptr;       ///< null: there is none
    InFlight* in_flight = nullptr;      ///< null: the caller has merged equal requests itself
    PhaseMeter* meter = nullptr;        ///< gets the time of fetches and of the compile
    /// The caller reads the result from the store: a remote entry that the store does not keep is
    /// of no use.
    bool reads_from_store = false;
    CompileFailureKind* trouble = nullptr;  ///< set when the compile fails; null: not wanted
    NvrtcFailure* nvrtc_failure = nullptr;  ///< the same
  };
  CompilePipeline(Caller& caller, const Options& options);

  /// What gave the result. With `other_thread` and `other_process` the caller's last lookup has the
  /// entry.
  enum class ResultFrom {
    other_thread,
    other_process,
    remote_store,
    other_machine,  ///< while this one waited for its lease
    joined,         ///< the daemon was compiling it already
    compiled
  };
  /// Why the store does not keep a result.
  struct Refusal {
    NotStored reason = NotStored::error;
    std::string text;
  };
  struct Outcome {
    ResultFrom from = ResultFrom::compiled;
    StoreEntry entry;  ///< of `remote_store` and those after it
    std::optional<Refusal> not_stored;
    bool stored_by_peer = false;            ///< the process that compiled it stored it
    bool observed = true;                   ///< as CompileResult
    bool uses_time = false;                 ///< as CompileResult
    std::chrono::nanoseconds fetch_time{};  ///< of `remote_store` and `other_machine`
  };

  /// Errors: the caller's (`admit`, `compiler`), the compiler's; timeout (cancelled).
  Result<Outcome> run();

 private:
  Result<Outcome> done(ResultFrom from);
  bool fetch(RemoteTier::Freshness freshness);
  Result<Outcome> compile();
  Result<CompileOutcome> attempt(Compiler& compiler, bool& is_committed);
  Result<bool> wait_for_lock(const std::string& holder);
  void commit(const CompileResult& result);
  std::optional<Refusal> put(const StoreEntry& entry);

  Caller& caller_;
  const Options options_;
  Outcome outcome_;
  RemoteTier* upload_to_ = nullptr;  ///< null: the compiler uploads, or nothing does
  bool delegates_ = false;
  std::optional<LinkParts> parts_;
  std::string lock_path_;  ///< empty: none, or it was waited for too long
  std::chrono::steady_clock::time_point deadline_;
  bool has_waited_ = false;
};

}  // namespace cukiln
