// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/compile_run.hpp"

#include <algorithm>
#include <utility>

#include "addons/daemon/client/object_message.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr const char* kOwnerLeft = "the client that serves the files has disconnected";

}  // namespace

/// Selects among remote dependency sets by the client's files: asks the client for the few paths in
/// which the sets differ. The client checks the whole set itself.
class CompileRun::ClientFileCheck final : public SetCheck {
 public:
  explicit ClientFileCheck(CompileRun& run) : run_(run) {}

  std::optional<SetTree::Label> label(const std::string& path) override {
    auto known = run_.recorder_.label(path);
    if (!known && run_.reply(path)) {
      known = run_.recorder_.label(path);
    }
    SetTree::Label unreadable;
    unreadable.fill(1);
    return known.value_or(unreadable);
  }
  /// False for what the store has already, which does not hold: the client has looked up.
  bool holds(const DependencySet& set, bool) override {
    const CompileSubmission& submission = run_.submission_;
    const CacheKey key = cache_key_of(submission.digest, set.canonical());
    const auto sets = run_.context_.store.find_sets(submission.digest, *submission.canonical);
    const auto leaves = sets ? sets->leaves() : std::vector<SetTree::Leaf>();
    return std::none_of(leaves.begin(), leaves.end(),
                        [&](const SetTree::Leaf& leaf) { return leaf.key == key; });
  }

 private:
  CompileRun& run_;
};

CompileRun::CompileRun(const Context& context, Observer& observer, std::uint64_t serial,
                       const CompileSubmission& submission)
    : context_(context),
      observer_(observer),
      serial_(serial),
      submission_(submission),
      recorder_(submission_.order->request),
      limit_(submission_.timeout),
      limit_timer_(context.loop, [this] { cancel_overdue(); }),
      answer_timer_(context.loop, [this] {
        if (waits_for_answer()) {
          observer_.on_answer_overdue(serial_);
        }
      }) {}

CompileRun::~CompileRun() {
  if (thread_.joinable()) {
    cancel();
    thread_.join();
  }
}

Result<std::unique_ptr<CompileRun>> CompileRun::start(const Context& context, Observer& observer,
                                                      std::uint64_t serial,
                                                      const CompileSubmission& submission) {
  return guarded([&]() -> Result<std::unique_ptr<CompileRun>> {
    std::unique_ptr<CompileRun> self(new CompileRun(context, observer, serial, submission));
    TaskQueue::Prepared ended([&observer, serial] { observer.on_ended(serial); });
    self->limit_timer_.set(self->began_ + self->limit_);
    self->thread_ = std::thread([run = self.get(), ended = std::move(ended)]() mutable {
      TaskQueue& tasks = run->context_.loop.tasks();
      run->result_.emplace(guarded([&] { return Result<RunResult>(run->run()); }));
      tasks.post(std::move(ended));  // the loop may destroy the run from here on
    });
    return self;
  });
}

bool CompileRun::answer(std::string& body) {
  {
    const MutexLock lock(mutex_);
    if (!has_question_ || answer_ || owner_left_) {
      return false;
    }
    answer_ = std::move(body);
  }
  answer_timer_.cancel();
  wake_.notify_one();
  return true;
}

void CompileRun::owner_left() {
  answer_timer_.cancel();
  {
    const MutexLock lock(mutex_);
    owner_left_ = true;
  }
  wake_.notify_one();
}

void CompileRun::extend(std::chrono::milliseconds limit) {
  if (!is_overdue_ && limit > limit_) {
    limit_ = limit;
    limit_timer_.set(began_ + limit);
  }
}

void CompileRun::cancel() noexcept {
  cancelled_.store(true);
  owner_left();
}

void CompileRun::cancel_overdue() {
  is_overdue_ = true;
  cancel();
}

CompileRun::Completion CompileRun::finish() {
  thread_.join();  // does not block: the thread has posted its end
  Completion completion;
  completion.result.kind = RunResult::Kind::declined;  // kept if there is no memory for the result
  completion.result.refusal.code = ErrorCode::internal;
  static_cast<void>(guarded([&]() -> Result<void> {
    completion.took = std::chrono::steady_clock::now() - began_;
    completion.is_client_limit = is_overdue_ && limit_ < context_.options.max_time;
    completion.result = *result_ ? **std::move(result_) : RunResult::of(result_->error());
    if (is_overdue_ && completion.result.kind == RunResult::Kind::owner_left) {
      completion.result = timed_out();
    }
    return {};
  }));
  return completion;
}

bool CompileRun::waits_for_answer() const {
  const MutexLock lock(mutex_);
  return has_question_ && !answer_ && !owner_left_;
}

Result<std::string> CompileRun::ask_owner(const std::string& path) {
  MutexLock lock(mutex_);
  if (owner_left_) {
    return Error(ErrorCode::timeout, kOwnerLeft);
  }
  has_question_ = true;
  answer_.reset();
  lock.unlock();
  context_.loop.post(
      [&observer = observer_, serial = serial_, path] { observer.on_question(serial, path); });
  lock.lock();
  wake_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return owner_left_ || answer_.has_value(); });
  has_question_ = false;
  if (owner_left_) {
    return Error(ErrorCode::timeout, kOwnerLeft);
  }
  return *std::exchange(answer_, std::nullopt);
}

Result<std::string> CompileRun::reply(const std::string& path) {
  if (auto own = recorder_.answer_of_source(path)) {
    return *std::move(own);  // part of the request: no client is asked
  }
  CUKILN_TRY(std::string body, ask_owner(path));
  const auto answers = wire::Answers::decode(body);
  const std::string fault = answers ? recorder_.record(path, *answers) : "malformed answer";
  if (!fault.empty()) {
    return make_error(ErrorCode::invalid_argument, "{} was not compiled: {}",
                      submission_.order->labels.name, fault);
  }
  return body;
}

Result<DependencySet> CompileRun::take_dependencies(const wire::Compiled& compiled) {
  CUKILN_TRY(DependencySet set, recorder_.take_dependencies(compiled));
  set_canonical_ = set.canonical();
  return set;
}

bool CompileRun::look_up_again() {
  const auto answer = ask_owner({});
  const auto decoded = answer ? wire::StillNeeded::decode(*answer) : std::nullopt;
  return decoded && !decoded->needed;
}

SetCheck& CompileRun::remote_check() {
  check_ = std::make_unique<ClientFileCheck>(*this);
  return *check_;
}

Result<Compiler*> CompileRun::compiler() {
  auto compiler = context_.compilers.for_order(*submission_.order);
  declined_ = !compiler;
  return compiler;
}

RunResult CompileRun::timed_out() const {
  return RunResult::of(make_error(ErrorCode::timeout,
                                  "compiling {} took longer than {} ms and was cancelled; raise "
                                  "compile_timeout if it needs more",
                                  submission_.order->labels.name, limit_.count()));
}

RunResult CompileRun::failure_of(const Error& error) const {
  RunResult out;
  if (declined_) {
    out.kind = RunResult::Kind::declined;
    out.refusal = wire::Refusal::of(error);
    return out;
  }
  const MutexLock lock(mutex_);
  out.kind = owner_left_ && error.code() == ErrorCode::timeout ? RunResult::Kind::owner_left
                                                               : RunResult::Kind::failed;
  const bool depends_on_files = error.code() == ErrorCode::compile_failed ||
                                error.code() == ErrorCode::incompatible ||
                                error.code() == ErrorCode::invalid_argument;
  out.refusal = wire::Refusal::of(error, depends_on_files ? set_canonical_ : std::string());
  return out;
}

RunResult CompileRun::result_of(const CompilePipeline::Outcome& outcome) const {
  RunResult out;
  if (outcome.from != CompilePipeline::ResultFrom::compiled &&
      outcome.from != CompilePipeline::ResultFrom::joined) {
    out.kind = RunResult::Kind::superseded;
    return out;
  }
  auto sealed = seal_object(encode(outcome.entry), outcome.entry.cubin.ptx.view());
  if (!sealed) {
    return RunResult::of(sealed.error());
  }
  out.kind = RunResult::Kind::done;
  out.key = outcome.entry.key;
  out.sealed = std::make_shared<UniqueFd>(*std::move(sealed));
  out.terms.stored = !outcome.not_stored;
  out.terms.observed = outcome.observed;
  out.terms.uses_time = outcome.uses_time;
  return out;
}

RunResult CompileRun::run() {
  const wire::CompileOrder& order = *submission_.order;
  const std::string lock_folder = context_.store.lock_folder();
  CompileFailureKind failure_kind = CompileFailureKind::other;
  CompilePipeline pipeline(*this, {.request = order.request,
                                   .canonical = *submission_.canonical,
                                   .digest = submission_.digest,
                                   .label = order.labels.name,
                                   .labels = order.labels,
                                   .store = context_.store,
                                   .lock_folder = lock_folder,
                                   .cancelled = cancelled_,
                                   .log = context_.log,
                                   .timeout = context_.options.max_time,
                                   .remote = context_.remote,
                                   .reads_from_store = true,
                                   .trouble = &failure_kind});
  const auto outcome = pipeline.run();
  RunResult out = outcome ? result_of(*outcome) : failure_of(outcome.error());
  out.failure_kind = failure_kind;
  return out;
}

}  // namespace cukiln::daemon
