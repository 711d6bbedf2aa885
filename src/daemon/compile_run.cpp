// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_run.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "compile/local_file_provider.hpp"

namespace cukiln::daemon {

/// Files that this process opens itself.
struct CompileRun::Here {
  FileServer files;
  LocalFileProvider provider;
  Here(const CompileRequest& request, const wire::SourceRoots& places)
      : files(places.roots, nullptr), provider(request, request.translation_unit(), files) {}
};

/// By the files of the client, which is asked about the few that tell the fleet's sets apart.
/// Whether the whole set holds is for the client to see.
class CompileRun::OwnerCheck final : public SetCheck {
 public:
  explicit OwnerCheck(CompileRun& run) : run_(run) {}

  SetTree::Label label(const std::string& path) override {
    auto known = run_.account_.label(path);
    if (!known && run_.reply(path)) {
      known = run_.account_.label(path);
    }
    SetTree::Label unreadable;
    unreadable.fill(1);
    return known.value_or(unreadable);
  }
  bool holds(const DependencySet& set) override {
    return !run_.known_.contains(cache_key_of(run_.setup_.digest, set.canonical()));
  }

 private:
  CompileRun& run_;
};

CompileRun::CompileRun(Setup setup)
    : setup_(std::move(setup)),
      account_(setup_.order->request),
      here_(setup_.here ? std::make_unique<Here>(setup_.order->request, *setup_.here) : nullptr) {}

CompileRun::~CompileRun() = default;

void CompileRun::answer(std::string body) {
  {
    const MutexLock lock(mutex_);
    answer_ = std::move(body);
  }
  told_.notify_one();
}

void CompileRun::owner_left() {
  {
    const MutexLock lock(mutex_);
    owner_left_ = true;
  }
  told_.notify_one();
}

void CompileRun::cancel() noexcept {
  cancelled_.store(true);
  owner_left();
}

bool CompileRun::waits_for_answer() const {
  const MutexLock lock(mutex_);
  return asked_ && !answer_ && !owner_left_;
}

Result<std::string> CompileRun::ask_owner(const std::string& path) {
  MutexLock lock(mutex_);
  asked_ = true;
  answer_.reset();
  lock.unlock();
  setup_.ask(path);
  lock.lock();
  told_.wait(lock, [&] { return owner_left_ || answer_.has_value(); });
  asked_ = false;
  if (owner_left_) {
    return Error(ErrorCode::timeout, "the client that had the files has gone");
  }
  return *std::exchange(answer_, std::nullopt);
}

/// Each source is a file of its own; the unit that includes several comes after them.
std::uint32_t CompileRun::source_number(const std::string& path) const {
  const auto& sources = setup_.order->request.sources;
  const auto at = std::find_if(sources.begin(), sources.end(),
                               [&](const VirtualSource& source) { return source.path == path; });
  return static_cast<std::uint32_t>(at - sources.begin());
}

Result<std::string> CompileRun::reply(const std::string& path) {
  if (const SharedBytes* text = account_.source(path)) {
    // The request has it: nobody can say otherwise.
    wire::Answers own;
    own.answers.push_back({path,
                           wire::FileKind::file,
                           AnswerRecorder::kFirstSource + source_number(path),
                           {},
                           *text});
    return own.encode();
  }
  {
    const MutexLock lock(mutex_);
    if (owner_left_) {
      return Error(ErrorCode::timeout, "the client that had the files has gone");
    }
  }
  CUKILN_TRY(std::string body, here_ ? here_->provider.reply(path) : ask_owner(path));
  const auto answers = wire::Answers::decode(body);
  const std::string wrong = answers ? account_.record(path, *answers) : "the answer cannot be read";
  if (!wrong.empty()) {
    return make_error(ErrorCode::invalid_argument, "{} was not compiled: {}",
                      setup_.order->labels.name, wrong);
  }
  return body;
}

Result<DependencySet> CompileRun::take_dependencies(const wire::Compiled& compiled) {
  CUKILN_TRY(DependencySet set, account_.take_dependencies(compiled));
  looked_at_ = set.canonical();
  return set;
}

bool CompileRun::look_up_again() {
  const auto sets = setup_.store->find_sets(setup_.digest, setup_.canonical);
  const auto leaves = sets ? sets->leaves() : std::vector<SetTree::Leaf>();
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const SetTree::Leaf& leaf) { return !known_.contains(leaf.key); });
}

SetCheck& CompileRun::remote_check() {
  check_ = std::make_unique<OwnerCheck>(*this);
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
  out.kind = owner_left_ && error.code() == ErrorCode::timeout ? RunResult::Kind::gone
                                                               : RunResult::Kind::failed;
  // Only what a compiler said of files depends on them.
  const bool of_files = error.code() == ErrorCode::compile_failed ||
                        error.code() == ErrorCode::incompatible ||
                        error.code() == ErrorCode::invalid_argument;
  out.refusal = wire::Refusal::of(error, of_files ? looked_at_ : std::string());
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
  if (const auto sets = setup_.store->find_sets(setup_.digest, setup_.canonical)) {
    for (const SetTree::Leaf& leaf : sets->leaves()) {
      known_.insert(leaf.key);
    }
  }
  const wire::CompileOrder& order = *setup_.order;
  const std::string lock_folder = setup_.store->lock_folder();
  CompileFailureKind trouble = CompileFailureKind::other;
  CompilePipeline pipeline(*this, {.request = order.request,
                                   .canonical = setup_.canonical,
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
                                   .trouble = &trouble});
  const auto outcome = pipeline.run();
  RunResult out = outcome ? result_of(*outcome) : failure_of(outcome.error());
  out.trouble = trouble;
  return out;
}

}  // namespace cukiln::daemon
