// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_run.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

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
  bool holds(const DependencySet& set, bool) override {
    return !run_.known_.contains(cache_key_of(run_.setup_.digest, set.canonical()));
  }

 private:
  CompileRun& run_;
};

CompileRun::CompileRun(Setup setup) : setup_(std::move(setup)), recorder_(setup_.order->request) {}

CompileRun::~CompileRun() = default;

void CompileRun::answer(std::string body) {
  {
    const MutexLock lock(mutex_);
    answer_ = std::move(body);
  }
  wake_.notify_one();
}

void CompileRun::owner_left() {
  {
    const MutexLock lock(mutex_);
    owner_left_ = true;
  }
  wake_.notify_one();
}

void CompileRun::cancel() noexcept {
  cancelled_.store(true);
  owner_left();
}

bool CompileRun::waits_for_answer() const {
  const MutexLock lock(mutex_);
  return has_question_ && !answer_ && !owner_left_;
}

Result<std::string> CompileRun::ask_owner(const std::string& path) {
  MutexLock lock(mutex_);
  has_question_ = true;
  answer_.reset();
  lock.unlock();
  setup_.ask(path);
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
  {
    const MutexLock lock(mutex_);
    if (owner_left_) {
      return Error(ErrorCode::timeout, kOwnerLeft);
    }
  }
  CUKILN_TRY(std::string body, ask_owner(path));
  const auto answers = wire::Answers::decode(body);
  const std::string fault = answers ? recorder_.record(path, *answers) : "malformed answer";
  if (!fault.empty()) {
    return make_error(ErrorCode::invalid_argument, "{} was not compiled: {}",
                      setup_.order->labels.name, fault);
  }
  return body;
}

Result<DependencySet> CompileRun::take_dependencies(const wire::Compiled& compiled) {
  CUKILN_TRY(DependencySet set, recorder_.take_dependencies(compiled));
  set_canonical_ = set.canonical();
  return set;
}

bool CompileRun::look_up_again() {
  const auto sets = setup_.store->find_sets(setup_.digest, *setup_.canonical);
  const auto leaves = sets ? sets->leaves() : std::vector<SetTree::Leaf>();
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const SetTree::Leaf& leaf) { return !known_.contains(leaf.key); });
}

SetCheck& CompileRun::remote_check() {
  check_ = std::make_unique<ClientFileCheck>(*this);
  return *check_;
}

Result<Compiler*> CompileRun::compiler() {
  auto compiler = setup_.compilers->for_order(*setup_.order);
  declined_ = !compiler;
  return compiler;
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
  auto sealed = to_wire(outcome.entry).seal();
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
  if (const auto sets = setup_.store->find_sets(setup_.digest, *setup_.canonical)) {
    for (const SetTree::Leaf& leaf : sets->leaves()) {
      known_.insert(leaf.key);
    }
  }
  if (!setup_.again && !known_.empty()) {  // the client has not checked these yet
    RunResult look_up;
    look_up.kind = RunResult::Kind::superseded;
    return look_up;
  }
  const wire::CompileOrder& order = *setup_.order;
  const std::string lock_folder = setup_.store->lock_folder();
  CompileFailureKind failure_kind = CompileFailureKind::other;
  CompilePipeline pipeline(*this, {.request = order.request,
                                   .canonical = *setup_.canonical,
                                   .digest = setup_.digest,
                                   .label = order.labels.name,
                                   .labels = order.labels,
                                   .store = *setup_.store,
                                   .lock_folder = lock_folder,
                                   .cancelled = cancelled_,
                                   .log = setup_.log,
                                   .timeout = setup_.timeout,
                                   .remote = setup_.remote,
                                   .reads_from_store = true,
                                   .trouble = &failure_kind});
  const auto outcome = pipeline.run();
  RunResult out = outcome ? result_of(*outcome) : failure_of(outcome.error());
  out.failure_kind = failure_kind;
  return out;
}

}  // namespace cukiln::daemon
