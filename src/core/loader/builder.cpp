// SPDX-License-Identifier: Apache-2.0
#include "core/loader/builder.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"
#include "core/compile/compile_budget.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "core/key/std_headers.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/compile_pipeline.hpp"
#include "core/loader/make_entry.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMaxFailureLog = 256u << 10;  // larger ones are not remembered

Miss miss_of(const FileServer::Mismatch& mismatch, const FileServer& files) {
  using What = FileServer::Mismatch::What;
  Miss miss;
  if (mismatch.what == What::vanished && files.is_as_recorded(mismatch.path)) {
    miss.why = Miss::Why::unvouched;  // it would hold if the entry could be trusted
    return miss;
  }
  miss.why = mismatch.what == What::appeared   ? Miss::Why::appeared
             : mismatch.what == What::vanished ? Miss::Why::vanished
             : mismatch.what == What::relinked ? Miss::Why::identity_changed
                                               : Miss::Why::changed;
  miss.path = files.real_path(mismatch.path);
  miss.of_cukiln = is_std_header(mismatch.path);
  miss.of_toolkit = !miss.of_cukiln && mismatch.path.starts_with(std::string(kToolkitRoot) + "/");
  return miss;
}

/// What makes a miss a hit on a machine that must not compile.
std::string advice_offline(const Miss& miss, const std::string& compiler, bool can_compile) {
  switch (miss.why) {
    case Miss::Why::changed:
    case Miss::Why::appeared:
    case Miss::Why::vanished:
    case Miss::Why::identity_changed: break;
    case Miss::Why::unvouched:
      return "bring it in a system store of root's, or signed by the machine that compiled it with "
             "its own CUDA toolkit";
    default:
      return std::string("compile it elsewhere and bring the store") +
             (can_compile ? ", or allow compiling" : "");
  }
  if (miss.of_cukiln) {
    return std::string("compile it elsewhere with this version of cukiln and the same std_shims") +
           (can_compile ? ", or allow compiling" : "");
  }
  if (!miss.of_toolkit) {
    return "bring the files that it was compiled with, or compile it elsewhere with these";
  }
  return can_compile ? "compile it elsewhere with this machine's NVRTC and CUDA headers, or allow "
                       "compiling"
                     : fmt::format(
                           "CUDA's headers on this machine are not those of {}: install "
                           "those, or remove them, since without NVRTC none are needed",
                           compiler);
}

}  // namespace

Builder::Builder(ObjectTier& store, Compiler& compiler, StatCache& stats,
                 LoaderTelemetry& telemetry, Options options)
    : store_(store),
      compiler_(compiler),
      stats_(stats),
      telemetry_(telemetry),
      options_(std::move(options)) {}

Builder::Found Builder::look_up(const ModuleRequest& request, Purpose purpose) {
  const auto began = SteadyClock::now();
  Found found;
  std::unique_ptr<FileServer> files;
  probe(false, request, purpose, files, found);
  if (!found.entry && options_.daemon != nullptr) {
    probe(true, request, purpose, files, found);
    if (found.entry && purpose == Purpose::use) {
      store_.cache_in_memory(*found.entry);
    }
  }
  if (found.entry && purpose == Purpose::use) {
    telemetry_.hit(found.entry->found_in, SteadyClock::now() - began);
  }
  return found;
}

std::optional<Miss::Why> Builder::refusal_of_signers(const StoreEntry& entry,
                                                     const ModuleRequest& request) const {
  if (options_.revoked_keys.signed_any_of(entry.signer)) {
    return Miss::Why::revoked;
  }
  // The name in the entry is its signer's word, and no part of the key: the name that this host
  // gives the module counts as well.
  const KeyScopes& scopes = options_.key_scopes;
  if (!scopes.cover(entry.signer, entry.labels.name) || !scopes.cover(entry.signer, request.name)) {
    return Miss::Why::out_of_scope;
  }
  return std::nullopt;
}

/// Looks up in the store, or in the daemon's. `files` is created if it is null, and shared by the
/// stores of one lookup.
void Builder::probe(bool in_daemon, const ModuleRequest& request, Purpose purpose,
                    std::unique_ptr<FileServer>& files, Found& found) {
  if (files == nullptr) {
    files = request.files(&stats_);
  }
  FileCheck check(*files);
  Lookup entry = in_daemon ? options_.daemon->find(request.digest, request.canonical, check)
                           : store_.find(request.digest, request.canonical, check, purpose);
  if (!entry) {
    if (!in_daemon) {  // which counts its errors
      telemetry_.count(&Stats::store_errors);
      options_.log.warn("{}: the lookup in the store failed: {}", request.name,
                        entry.error().message());
    }
    return;
  }
  const auto refusal = *entry ? refusal_of_signers(**entry, request) : std::nullopt;
  if (refusal) {
    if (purpose == Purpose::use && !in_daemon) {
      static_cast<void>(
          store_.remove(ObjectName::of((*entry)->key)));  // if it stays, it is a miss again
    }
    found.miss = {*refusal, {}};
  } else if (*entry) {
    found.entry = **std::move(entry);
  } else if (check.has_lost()) {
    const bool is_damaged = check.loss() == SetCheck::Loss::damaged;
    found.miss = {is_damaged ? Miss::Why::damaged : Miss::Why::evicted, {}};
  } else if (found.miss.why == Miss::Why::not_stored &&
             check.mismatch().what != FileServer::Mismatch::What::none) {
    found.miss = miss_of(check.mismatch(), *files);
  }
}

/// Runs the pipeline for one request of this host.
class Builder::PipelineCaller final : public CompilePipeline::Caller {
 public:
  PipelineCaller(Builder& builder, const ModuleRequest& request, Found found,
                 const MayCompile& may_compile, const std::atomic<bool>* call_cancelled,
                 NvrtcFailure* failure)
      : builder_(builder),
        request_(request),
        found_(std::move(found)),
        may_compile_(may_compile),
        call_cancelled_(call_cancelled),
        failure_(failure),
        cancelled_(builder.cancelled_, call_cancelled) {}

  bool look_up_again() override {
    found_ = builder_.look_up(request_);
    return found_.entry.has_value();
  }
  SetCheck& remote_check() override {
    check_.reset();
    files_ = request_.files(&builder_.stats_);
    return check_.emplace(*files_);
  }
  Result<void> admit() override;
  /// The daemon acquires the lease and uploads by itself.
  bool delegates() override {
    return !request_.request.link && compiler_for_target().single_flight();
  }
  Result<Compiler*> compiler() override { return &builder_.compiler_; }
  FileSource files() override {
    check_.reset();
    files_ = request_.files(&builder_.stats_);
    return FileSource(*files_);
  }

  Result<LinkParts> parts() override;
  bool has_own_toolkit(const DependencySet&) override { return builder_.options_.finds_toolkit; }

  void waited_for_thread() override {
    has_waited_ = true;
    telemetry().count(&Stats::singleflight_waits);
  }
  void waiting_for_process(const std::string& holder) override {
    telemetry().count(&Stats::singleflight_waits);
    log().info("{}: waiting for {}", request_.name, holder.empty() ? "another process" : holder);
  }
  void wait_timed_out(const std::string& holder) override {
    log().warn("{}: waited {} ms for {}; compiling it here as well", request_.name,
               builder_.options_.compile_timeout.count(), holder);
  }
  void compile_failed(const Error& error) override {
    telemetry().count(&Stats::failed);
    builder_.add_event(EventKind::compile, request_, [&](Event& event) {
      event.reason = error.message();
      event.failed = true;
      event.elapsed = SteadyClock::now() - admitted_;
    });
    if (!cancelled_.is_set()) {
      builder_.failures_.remember(request_.digest, error);
    }
    if (remembers_failure() && failure_->dependencies && failure_->log.size() <= kMaxFailureLog) {
      // Only this user's store, which warns if it cannot: the remote store gets no failure.
      static_cast<void>(builder_.store_.put(
          make_failure(request_.request, request_.labels, failure_->log, *failure_->dependencies)));
    }
  }

  /// Counts an outcome and describes how the cubin was obtained.
  Built take(CompilePipeline::Outcome outcome);

 private:
  LoaderTelemetry& telemetry() { return builder_.telemetry_; }
  const Logger& log() { return builder_.options_.log; }
  Compiler& compiler_for_target() { return builder_.compiler_.for_target(request_.request.target); }
  bool remembers_failure() const { return failure_ != nullptr && request_.request.program; }
  void count_fetched(const CompilePipeline::Outcome& outcome);
  void count_committed(const CompilePipeline::Outcome& outcome);

  Builder& builder_;
  const ModuleRequest& request_;
  Found found_;
  const MayCompile& may_compile_;
  const std::atomic<bool>* const call_cancelled_;
  NvrtcFailure* const failure_;  // null: not asked for
  const CancelFlags cancelled_;
  bool has_waited_ = false;           // for another thread, which may have failed
  std::string reason_;                // of the compile
  std::optional<Nvtx::Range> range_;  // since a compile was admitted
  SteadyClock::time_point admitted_;
  std::unique_ptr<FileServer> files_;
  std::optional<FileCheck> check_;
};

Result<void> Builder::PipelineCaller::admit() {
  if (remembers_failure() && has_waited_) {
    if (auto known = builder_.recall(request_, *failure_)) {
      return *std::move(known);
    }
  }
  telemetry().count(found_.miss.counter());
  reason_ = found_.miss.text();
  admitted_ = SteadyClock::now();
  builder_.add_event(EventKind::miss, request_, [&](Event& event) { event.reason = reason_; });
  if (builder_.options_.on_miss) {
    builder_.options_.on_miss();
  }
  if (builder_.options_.offline) {
    const bool was_stored = found_.miss.why != Miss::Why::not_stored;
    const bool can_compile = compiler_for_target().toolchain().has_value();
    return make_error(ErrorCode::not_found,
                      "{} for {} is not in the store{} and compiling is forbidden (offline); {}",
                      request_.name, request_.request.target.name(),
                      was_stored ? fmt::format(" ({})", reason_) : std::string(),
                      advice_offline(found_.miss, request_.labels.compiler, can_compile));
  }
  if (cancelled_.is_set()) {  // before a compile starts
    return make_error(ErrorCode::timeout, "compiling {} was cancelled", request_.name);
  }
  if (may_compile_) {
    CUKILN_CHECK(may_compile_(found_.miss));
  }
  if (auto known = builder_.failures_.recall(request_.digest)) {
    return *std::move(known);
  }
  range_.emplace(builder_.options_.nvtx, "compile", request_.name);
  return {};
}

Result<LinkParts> Builder::PipelineCaller::parts() {
  const auto files_of_all = request_.files(&builder_.stats_);
  const auto build = [&](const ModuleRequest& part) -> Result<BuiltPart> {
    CUKILN_TRY(Built built, builder_.build(part, builder_.look_up(part), {}, call_cancelled_));
    return BuiltPart{std::move(built.entry.cubin), std::move(built.entry.dependencies),
                     built.observed, built.uses_time};
  };
  CompileBudget* const budget = builder_.options_.budget;
  const std::size_t jobs = budget != nullptr ? budget->jobs() : 1;
  return addons().build_parts(request_, *files_of_all, build, jobs);
}

void Builder::PipelineCaller::count_fetched(const CompilePipeline::Outcome& outcome) {
  telemetry().hit(Tier::remote, outcome.fetch_time);
  if (outcome.not_stored && outcome.not_stored->reason == NotStored::error) {
    telemetry().count(&Stats::store_errors);
    log().info("{}: fetched, but not stored: {}", request_.name, outcome.not_stored->text);
  }
}

void Builder::PipelineCaller::count_committed(const CompilePipeline::Outcome& outcome) {
  if (outcome.not_stored && outcome.not_stored->reason == NotStored::error) {
    telemetry().count(&Stats::store_errors);
  }
  if (outcome.stored_by_peer && outcome.from == CompilePipeline::ResultFrom::joined) {
    return;  // the peer counts it
  }
  telemetry().count(outcome.not_stored ? &Stats::not_stored : &Stats::stored);
  if (outcome.not_stored) {
    telemetry().not_stored(outcome.not_stored->reason);
  }
}

Built Builder::PipelineCaller::take(CompilePipeline::Outcome outcome) {
  using ResultFrom = CompilePipeline::ResultFrom;
  Built built;
  switch (outcome.from) {
    case ResultFrom::other_thread:
      return builder_.hit(request_, *std::move(found_.entry), "another thread compiled it");
    case ResultFrom::other_process:
      return builder_.hit(request_, *std::move(found_.entry), "another process stored it", false);
    case ResultFrom::remote_store:
      count_fetched(outcome);
      built = builder_.hit(request_, std::move(outcome.entry), "in the remote store");
      break;
    case ResultFrom::other_machine:
      count_fetched(outcome);
      built =
          builder_.hit(request_, std::move(outcome.entry), "another machine compiled it", false);
      break;
    case ResultFrom::joined:
      telemetry().count(&Stats::singleflight_waits);
      count_committed(outcome);
      built = builder_.hit(request_, std::move(outcome.entry), "another process had it compiled",
                           false);
      break;
    case ResultFrom::compiled:
      telemetry().count(&Stats::compiles);
      count_committed(outcome);
      built.outcome = Outcome::compiled;
      built.reason = std::move(reason_);
      built.entry = std::move(outcome.entry);
      builder_.add_event(EventKind::compile, request_, [&](Event& event) {
        event.key = built.entry.key;
        event.reason = built.reason;
        event.elapsed = SteadyClock::now() - admitted_;
      });
      break;
  }
  built.observed = outcome.observed;
  built.uses_time = outcome.uses_time;
  if (outcome.not_stored) {
    const NotStored reason = outcome.not_stored->reason;
    const bool never = reason == NotStored::time || reason == NotStored::unobserved;
    built.not_stored.emplace(never ? ErrorCode::incompatible : ErrorCode::io,
                             std::move(outcome.not_stored->text));
  }
  return built;
}

/// Adds an event of a module, which `complete` completes, if events are wanted.
template <class Complete>
void Builder::add_event(EventKind kind, const ModuleRequest& request, const Complete& complete) {
  if (options_.events != nullptr) {
    options_.events->add([&] {
      Event event;
      event.kind = kind;
      event.module = request.name;
      event.target = request.request.target;
      complete(event);
      return event;
    });
  }
}

std::optional<Error> Builder::recall(const ModuleRequest& request, NvrtcFailure& failure) {
  const std::string canonical = request.request.failure_canonical();
  const auto files = request.files(&stats_);
  FileCheck check(*files);
  const Lookup found =
      store_.find(CompileRequest::digest_of(canonical), canonical, check, Purpose::use);
  if (!found || !*found) {
    return std::nullopt;
  }
  failure = {kNvrtcCompilation, std::string((*found)->cubin.image.view())};
  return make_error(ErrorCode::compile_failed,
                    "{} does not compile: nothing has changed since NVRTC refused it",
                    request.name);
}

/// Counts a result that need not be compiled here. `saves`: nothing waited for its compile.
Built Builder::hit(const ModuleRequest& request, StoreEntry entry, const char* reason, bool saves) {
  telemetry_.count(&Stats::hits);
  if (saves) {
    telemetry_.count(&Stats::saved_us,
                     static_cast<std::uint64_t>(std::max<std::int64_t>(entry.compile_us, 0)));
  }
  Built built;
  built.reason = reason;
  if (request.trusts_recorded_toolkit(entry.dependencies)) {
    built.reason += ", with CUDA's headers as recorded: there are none here";
  }
  built.entry = std::move(entry);
  add_event(EventKind::hit, request, [&](Event& event) {
    event.key = built.entry.key;
    event.reason = built.reason;
  });
  return built;
}

Result<Built> Builder::build(const ModuleRequest& request, Found found,
                             const MayCompile& may_compile, const std::atomic<bool>* cancelled,
                             PhaseMeter* meter, NvrtcFailure* failure) {
  if (found.entry) {
    return hit(request, *std::move(found.entry), "in the store");
  }
  if (const auto corrected = request.with_true_digests(stats_)) {
    return build(*corrected, look_up(*corrected), may_compile, cancelled, meter, failure);
  }
  if (failure != nullptr && request.request.program) {
    if (auto known = recall(request, *failure)) {
      return *std::move(known);
    }
  }
  const CancelFlags cancel_flags(cancelled_, cancelled);
  PipelineCaller caller(*this, request, std::move(found), may_compile, cancelled, failure);
  CompilePipeline pipeline(caller, {.request = request.request,
                                    .canonical = request.canonical,
                                    .digest = request.digest,
                                    .label = request.name,
                                    .labels = request.labels,
                                    .store = store_,
                                    .lock_folder = options_.lock_folder,
                                    .cancelled = cancel_flags,
                                    .log = options_.log,
                                    .timeout = options_.compile_timeout,
                                    .remote = remote_,
                                    .in_flight = &in_flight_,
                                    .meter = meter,
                                    .nvrtc_failure = failure});
  CUKILN_TRY(auto outcome, pipeline.run());
  return caller.take(std::move(outcome));
}

}  // namespace cukiln
