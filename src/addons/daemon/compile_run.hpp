// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "addons/daemon/answer_recorder.hpp"
#include "addons/daemon/compile_submission.hpp"
#include "addons/daemon/compilers.hpp"
#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/base/file.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"
#include "core/compile/compiler.hpp"
#include "core/compile/file_provider.hpp"
#include "core/loader/compile_pipeline.hpp"
#include "core/store/remote_tier.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// The result of a run.
struct RunResult {
  enum class Kind {
    done,        ///< `sealed` is the entry
    superseded,  ///< the store has a dependency set that it did not have before
    failed,      ///< `refusal` has the error
    declined,    ///< the daemon does not have the client's NVRTC; `refusal.message` has details
    owner_left,  ///< the client that serves the files disconnected before its last answer
  };
  Kind kind = Kind::failed;
  std::shared_ptr<UniqueFd> sealed;
  CacheKey key;
  wire::EntryTerms terms;
  wire::Refusal refusal;
  CompileFailureKind failure_kind = CompileFailureKind::other;

  /// A failure that does not depend on any client's files.
  static RunResult of(const Error& error) {
    RunResult failed;
    failed.refusal = wire::Refusal::of(error);
    return failed;
  }
};

/// One compile in a thread of its own: drives a CompilePipeline with the files of a client, and is
/// cancelled when it exceeds its time limit. Threads: its own one, and the loop's for all that is
/// public.
class CompileRun final : private FileProvider, private CompilePipeline::Caller {
 public:
  struct Options {
    std::chrono::milliseconds max_time{300'000};       ///< of a run
    std::chrono::milliseconds answer_timeout{10'000};  ///< for a client's answer to one question
  };
  /// What every run uses. All of it outlives them.
  struct Context {
    Options options;
    EventLoop& loop;
    Compilers& compilers;
    TieredStore& store;
    RemoteTier* remote = nullptr;  ///< may be null
    Logger log;
  };
  /// Called on the loop's thread, with the number of the run. May be called after a run was
  /// destroyed.
  class Observer {
   public:
    virtual ~Observer() = default;
    /// The run asks the client that serves its files for one or, if `path` is empty, to look up
    /// again: call `begin_question`.
    virtual void on_question(std::uint64_t serial, std::string path) = 0;
    /// A question was not answered in time. The run continues to wait, until `owner_left`.
    virtual void on_answer_overdue(std::uint64_t serial) = 0;
    /// The run is over: call `finish`. Called once for each run, even without memory, because the
    /// task for it is allocated before the thread starts.
    virtual void on_ended(std::uint64_t serial) = 0;
  };
  struct Completion {
    RunResult result;
    std::chrono::nanoseconds took{};
    bool is_client_limit = false;  ///< cancelled by a limit shorter than `max_time`
  };

  /// `context` and `observer` outlive the run. Errors: internal (no thread, no memory); the
  /// observer is not called then.
  static Result<std::unique_ptr<CompileRun>> start(const Context& context, Observer& observer,
                                                   std::uint64_t serial,
                                                   const CompileSubmission& submission);
  /// Cancels the run and waits for its thread.
  ~CompileRun() override;

  /// Starts the time in which the client has to answer.
  void begin_question() { answer_timer_.set_after(context_.options.answer_timeout); }
  /// Passes on an answer. False if the run waits for none; `body` is unchanged then.
  bool answer(std::string& body) CUKILN_EXCLUDES(mutex_);
  /// The client that serves the files has disconnected: the open question, or the next one, ends
  /// the run.
  void owner_left() CUKILN_EXCLUDES(mutex_);
  /// Raises the time limit to `limit`, for a client that joined.
  void extend(std::chrono::milliseconds limit);
  void cancel() noexcept CUKILN_EXCLUDES(mutex_);
  /// Returns how the run ended. For `on_ended`, once. Does not block.
  Completion finish();

 private:
  CompileRun(const Context& context, Observer& observer, std::uint64_t serial,
             const CompileSubmission& submission);
  void cancel_overdue();
  RunResult run();

  // FileProvider, CompilePipeline::Caller: called by the run's thread.
  Result<std::string> reply(const std::string& path) override;
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override;
  const std::string& refused() const noexcept override { return recorder_.refused(); }
  /// Asks the client, which has the files and, as a rule, the same store.
  bool look_up_again() override;
  SetCheck& remote_check() override;
  Result<Compiler*> compiler() override;
  FileSource files() override { return FileSource(*this); }
  bool has_own_toolkit(const DependencySet& dependencies) override {
    return context_.compilers.have_toolkit_of(submission_.order->request, dependencies);
  }

  RunResult result_of(const CompilePipeline::Outcome& outcome) const;
  RunResult failure_of(const Error& error) const;
  RunResult timed_out() const;
  Result<std::string> ask_owner(const std::string& path);
  bool waits_for_answer() const CUKILN_EXCLUDES(mutex_);

  class ClientFileCheck;
  const Context& context_;
  Observer& observer_;
  const std::uint64_t serial_;
  const CompileSubmission submission_;
  AnswerRecorder recorder_;
  std::string set_canonical_;  // the dependency set of the compile; empty if it is not known
  std::unique_ptr<ClientFileCheck> check_;
  bool declined_ = false;
  std::atomic<bool> cancelled_{false};

  mutable Mutex mutex_;
  ConditionVariable wake_;
  bool has_question_ CUKILN_GUARDED_BY(mutex_) = false;
  bool owner_left_ CUKILN_GUARDED_BY(mutex_) = false;
  std::optional<std::string> answer_ CUKILN_GUARDED_BY(mutex_);

  // Used by the loop's thread only.
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds limit_;
  bool is_overdue_ = false;
  EventLoop::Timer limit_timer_;
  EventLoop::Timer answer_timer_;

  std::optional<Result<RunResult>> result_;  // written by the thread before it posts its end
  std::thread thread_;
};

}  // namespace cukiln::daemon
