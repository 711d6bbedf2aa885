// SPDX-License-Identifier: Apache-2.0
#include "core/loader/compile_pipeline.hpp"

#include <utility>

#include "core/base/file.hpp"
#include "core/base/file_lock.hpp"
#include "core/base/result.hpp"
#include "core/loader/make_entry.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

CompilePipeline::CompilePipeline(Caller& caller, const Options& options)
    : caller_(caller), options_(options) {}

Result<LinkParts> CompilePipeline::Caller::parts() {
  return make_error(ErrorCode::internal,
                    "a request that links was given to a caller without parts");
}

Result<CompilePipeline::Outcome> CompilePipeline::done(ResultFrom from) {
  outcome_.from = from;
  return std::move(outcome_);
}

Result<CompilePipeline::Outcome> CompilePipeline::run() {
  std::optional<InFlight::Record> record;
  if (options_.in_flight != nullptr) {
    record.emplace(*options_.in_flight, options_.digest);
    if (record->waited()) {
      caller_.waited_for_thread();
      // The other thread's files may differ: the set must hold for this caller's.
      if (caller_.look_up_again()) {
        return done(ResultFrom::other_thread);
      }
    }
  }
  if (fetch(RemoteTier::Freshness::usual)) {
    return done(ResultFrom::remote_store);
  }
  CUKILN_CHECK(caller_.admit());
  delegates_ = caller_.delegates();
  upload_to_ = delegates_ ? nullptr : options_.remote;
  std::optional<RemoteLease> lease;
  if (upload_to_ != nullptr) {
    const PhaseMeter::Scope scope(options_.meter, Phase::fetch);
    lease =
        upload_to_->await_peer_or_lease(options_.canonical, options_.timeout, options_.cancelled,
                                        [this] { return fetch(RemoteTier::Freshness::now); });
    if (!lease) {
      return done(ResultFrom::other_machine);
    }
  }
  return compile();
}

/// True if the remote store has an entry that holds for the caller's files. Stores it locally.
bool CompilePipeline::fetch(RemoteTier::Freshness freshness) {
  if (options_.remote == nullptr) {
    return false;
  }
  const PhaseMeter::Scope scope(options_.meter, Phase::fetch);
  const auto began = SteadyClock::now();
  auto entry =
      options_.remote->find(options_.canonical, options_.label, caller_.remote_check(), freshness);
  if (!entry) {
    return false;
  }
  outcome_.fetch_time = SteadyClock::now() - began;
  entry->source_text = source_text_of(options_.request);
  auto not_stored = put(*entry);
  if (not_stored && options_.reads_from_store) {
    return false;
  }
  outcome_.not_stored = std::move(not_stored);
  outcome_.entry = *std::move(entry);
  return true;
}

Result<CompilePipeline::Outcome> CompilePipeline::compile() {
  const PhaseMeter::Scope scope(options_.meter, Phase::compile);
  CUKILN_TRY(Compiler* const compiler, caller_.compiler());
  if (options_.request.link) {
    CUKILN_TRY(parts_, caller_.parts());
  }
  if (!options_.lock_folder.empty()) {
    lock_path_ = join_path(options_.lock_folder, options_.digest.hex() + ".lock");
  }
  deadline_ = SteadyClock::now() + options_.timeout;
  std::optional<std::string> holder =
      delegates_ || lock_path_.empty() ? std::nullopt : FileLock::holder(lock_path_);
  for (;;) {
    if (holder) {
      CUKILN_TRY(const bool is_released, wait_for_lock(*holder));
      if (!is_released) {
        lock_path_.clear();  // compiling twice is better than not at all
      }
      if (caller_.look_up_again()) {
        return done(ResultFrom::other_process);
      }
    }
    bool is_committed = false;
    CUKILN_TRY(CompileOutcome attempted, attempt(*compiler, is_committed));
    switch (attempted.state) {
      case CompileState::done:
      case CompileState::joined:
        if (!is_committed) {
          outcome_.stored_by_peer = attempted.stored;
          commit(attempted.result);
          if (attempted.in_daemon) {  // where the next process finds it too
            outcome_.not_stored.reset();
          }
        }
        return done(attempted.state == CompileState::done ? ResultFrom::compiled
                                                          : ResultFrom::joined);
      case CompileState::superseded: return done(ResultFrom::other_process);
      case CompileState::busy: holder = std::move(attempted.owner); break;
    }
  }
}

Result<CompileOutcome> CompilePipeline::attempt(Compiler& compiler, bool& is_committed) {
  const FileSource files = caller_.files();
  CompileJob job{
      {options_.request, options_.label, &options_.labels, options_.timeout, options_.cancelled},
      files,
      {},
      options_.trouble,
      options_.nvrtc_failure};
  job.input.expected_bytes = options_.store.peak_bytes(options_.digest);
  job.input.parts = parts_ ? &*parts_ : nullptr;
  job.guard.lock_path = lock_path_;
  job.guard.still_needed = [this] { return !caller_.look_up_again(); };
  if (!lock_path_.empty()) {
    job.guard.publish = [&](const CompileResult& result) {
      commit(result);
      is_committed = true;
    };
  }
  auto outcome = compiler.compile(job);
  if (!outcome) {
    caller_.compile_failed(outcome.error());
  }
  return outcome;
}

/// True when no process holds the lock any more. The store is not polled meanwhile: it has the
/// result before the lock is released, and 64 processes that poll it would take the compiler's
/// core. False at the deadline. Errors: timeout (cancelled).
Result<bool> CompilePipeline::wait_for_lock(const std::string& holder) {
  if (!std::exchange(has_waited_, true)) {
    caller_.waiting_for_process(holder);
  }
  if (FileLock::await_release(lock_path_, deadline_, options_.cancelled)) {
    return true;
  }
  if (options_.cancelled.is_set()) {
    return make_error(ErrorCode::timeout, "{}: cancelled while waiting for another process",
                      options_.label);
  }
  caller_.wait_timed_out(holder);
  return false;
}

/// Stores a result, unless it must not be stored, and starts its upload.
void CompilePipeline::commit(const CompileResult& result) {
  outcome_.entry = make_entry(options_.request, options_.canonical, options_.labels, result);
  if (result.observed && caller_.has_own_toolkit(result.dependencies)) {
    outcome_.entry.signer = kOwnToolkit;
  }
  outcome_.observed = result.observed;
  outcome_.uses_time = result.uses_time;
  outcome_.not_stored.reset();
  if (result.uses_time) {
    outcome_.not_stored = {NotStored::time, "uses __TIME__, __DATE__ or __TIMESTAMP__"};
    return;
  }
  if (!result.observed) {
    outcome_.not_stored = {NotStored::unobserved,
                           "unobserved: what the compiler read is not known for certain"};
    return;
  }
  if (outcome_.stored_by_peer) {
    options_.store.cache_in_memory(outcome_.entry);
  } else {
    outcome_.not_stored = put(outcome_.entry);
    if (outcome_.not_stored && outcome_.not_stored->reason == NotStored::error) {
      options_.log.info("{}: compiled, but not stored: {}", options_.label,
                        outcome_.not_stored->text);  // the store has warned
    }
  }
  if (upload_to_ != nullptr) {
    upload_to_->put(outcome_.entry);
  }
}

std::optional<CompilePipeline::Refusal> CompilePipeline::put(const StoreEntry& entry) {
  const auto put = options_.store.put(entry);
  if (!put) {
    return Refusal{NotStored::error, put.error().message()};
  }
  switch (*put) {
    case PutOutcome::stored:
    case PutOutcome::already_there: return std::nullopt;
    case PutOutcome::too_large:
      return Refusal{NotStored::too_large, "larger than the store's limit"};
    case PutOutcome::not_stored: break;
  }
  return Refusal{NotStored::no_disk, "the store keeps nothing on disk"};
}

}  // namespace cukiln
