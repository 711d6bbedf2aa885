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
#include "daemon/user_stores.hpp"
#include "loader/compile_pipeline.hpp"
#include "store/remote_tier.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

/// What a run came to.
struct RunResult {
  enum class Kind {
    done,        ///< `sealed` is the entry
    superseded,  ///< the store has something for the request that it had not before
    failed,      ///< `refusal`
    declined,    ///< no compiler here is the client's; `refusal.message` says why
    gone,        ///< whoever had the files left before the last answer
  };
  Kind kind = Kind::failed;
  std::shared_ptr<UniqueFd> sealed;
  CacheKey key;
  wire::EntryTerms terms;
  wire::Refusal refusal;
  CompileFailureKind trouble = CompileFailureKind::other;

  /// It failed, for whatever files.
  static RunResult of(const Error& error) {
    RunResult failed;
    failed.refusal = wire::Refusal::of(error);
    return failed;
  }
};

/// One compile in a thread of its own, on behalf of a client that answers its questions by way of
/// the loop: drives a CompilePipeline with the client's files. It lasts as long as the thread does.
class CompileRun final : public FileProvider, private CompilePipeline::Caller {
 public:
  struct Setup {
    std::shared_ptr<const wire::CompileOrder> order;
    std::string canonical;
    RequestDigest digest;
    std::chrono::milliseconds timeout{0};
    bool again = false;  ///< what the store has does not hold for the client's files
    Compilers* compilers = nullptr;
    UserStores::Handle store;                          ///< the client's user's
    RemoteTier* remote = nullptr;                      ///< may be null
    std::function<void(const std::string& path)> ask;  ///< from the run's thread
    std::shared_ptr<const wire::SourceRoots> here;  ///< the files are opened here, nobody is asked
    Logger log;
  };
  explicit CompileRun(Setup setup);
  ~CompileRun() override;

  /// The thread's part: compiles, and stores the result.
  RunResult run();

  /// The loop's part.
  void answer(std::string body);
  void owner_left();  ///< a question that is open, or still to come, ends the run
  void cancel() noexcept;
  bool waits_for_answer() const;
  /// What the compile depends on, canonical; empty: that is not known. After the run.
  const std::string& looked_at() const noexcept { return looked_at_; }

  Result<std::string> reply(const std::string& path) override;
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override;
  const std::string& refused() const noexcept override { return account_.refused(); }

 private:
  /// Whether the client may be sent to the store: what the store had before does not count when the
  /// client has seen that it does not hold.
  bool is_stored() override { return !setup_.again && !known_.empty(); }
  /// True if the store has a set that it did not have before. Whether it holds for the client's
  /// files is for the client to see.
  bool look_up_again() override;
  SetCheck& remote_check() override;
  Result<Compiler*> compiler() override;
  FileSource files() override { return FileSource(*this); }

  RunResult result_of(const CompilePipeline::Outcome& outcome) const;
  RunResult failure_of(const Error& error) const;
  Result<std::string> ask_owner(const std::string& path);
  std::uint32_t source_number(const std::string& path) const;

  struct Here;
  class OwnerCheck;
  const Setup setup_;
  AnswerRecorder account_;
  std::unique_ptr<Here> here_;
  std::string looked_at_;               // the dependency set, canonical
  std::unordered_set<CacheKey> known_;  // what the store had before the run
  std::unique_ptr<OwnerCheck> check_;
  bool declined_ = false;
  std::atomic<bool> cancelled_{false};

  mutable Mutex mutex_;
  ConditionVariable told_;
  bool asked_ = false;
  bool owner_left_ = false;
  std::optional<std::string> answer_;
};

}  // namespace cukiln::daemon
