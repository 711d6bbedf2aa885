// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "base/mutex.hpp"
#include "compile/answer_recorder.hpp"
#include "compile/compiler.hpp"
#include "compile/file_provider.hpp"
#include "daemon/compilers.hpp"
#include "loader/compile_pipeline.hpp"
#include "store/remote_tier.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

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

/// One compile in a thread of its own: drives a CompilePipeline with the files of a client, which
/// the event loop asks for. Threads: `run` is called once, by the run's thread; the functions that
/// are marked so are called by the loop's.
class CompileRun final : public FileProvider, private CompilePipeline::Caller {
 public:
  struct Setup {
    std::shared_ptr<const wire::CompileOrder> order;
    std::shared_ptr<const std::string> canonical;
    RequestDigest digest;
    std::chrono::milliseconds timeout{0};
    bool again = false;  ///< no dependency set in the store holds for the client's files
    Compilers* compilers = nullptr;
    TieredStore* store = nullptr;
    RemoteTier* remote = nullptr;  ///< may be null
    /// Asks the client for a file, which arrives by `answer`. Called from the run's thread.
    std::function<void(const std::string& path)> ask;
    Logger log;
  };
  explicit CompileRun(Setup setup);
  ~CompileRun() override;

  /// Compiles, and stores the result.
  RunResult run();

  /// Passes on the client's answer to the open question. For the loop's thread, as the next three.
  void answer(std::string body) CUKILN_EXCLUDES(mutex_);
  /// Makes the open question, or the next one, end the run.
  void owner_left() CUKILN_EXCLUDES(mutex_);
  void cancel() noexcept CUKILN_EXCLUDES(mutex_);
  bool waits_for_answer() const CUKILN_EXCLUDES(mutex_);

  Result<std::string> reply(const std::string& path) override;
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override;
  const std::string& refused() const noexcept override { return recorder_.refused(); }

 private:
  /// True if the store has a set that it did not have before. The client checks whether it holds.
  bool look_up_again() override;
  SetCheck& remote_check() override;
  Result<Compiler*> compiler() override;
  FileSource files() override { return FileSource(*this); }
  bool has_own_toolkit(const DependencySet& dependencies) override {
    return setup_.compilers->have_toolkit_of(setup_.order->request, dependencies);
  }

  RunResult result_of(const CompilePipeline::Outcome& outcome) const;
  RunResult failure_of(const Error& error) const;
  Result<std::string> ask_owner(const std::string& path);

  class ClientFileCheck;
  const Setup setup_;
  AnswerRecorder recorder_;
  std::string set_canonical_;  // the dependency set of the compile; empty if it is not known
  std::unordered_set<CacheKey> known_;  // the store's keys for the request before the run
  std::unique_ptr<ClientFileCheck> check_;
  bool declined_ = false;
  std::atomic<bool> cancelled_{false};

  mutable Mutex mutex_;
  ConditionVariable wake_;
  bool has_question_ CUKILN_GUARDED_BY(mutex_) = false;
  bool owner_left_ CUKILN_GUARDED_BY(mutex_) = false;
  std::optional<std::string> answer_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
