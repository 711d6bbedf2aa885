// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_run.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/file_lock.hpp"
#include "base/result.hpp"
#include "compile/file_questions.hpp"
#include "loader/make_entry.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{20};

}  // namespace

/// Files that this process opens itself.
struct CompileRun::Here {
  FileServer files;
  FileQuestions questions;
  Here(const CompileRequest& request, const wire::Places& places)
      : files(places.roots, nullptr), questions(request, request.translation_unit(), files) {}
};

CompileRun::CompileRun(Setup setup)
    : setup_(std::move(setup)),
      account_(setup_.order->request),
      here_(setup_.here ? std::make_unique<Here>(setup_.order->request, *setup_.here) : nullptr) {}

CompileRun::~CompileRun() = default;

void CompileRun::answer(std::string body) {
  {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(body);
  }
  told_.notify_one();
}

void CompileRun::owner_left() {
  {
    const std::lock_guard lock(mutex_);
    owner_left_ = true;
  }
  told_.notify_one();
}

void CompileRun::cancel() noexcept {
  cancelled_.store(true);
  owner_left();
}

bool CompileRun::waits_for_answer() const {
  const std::lock_guard lock(mutex_);
  return asked_ && !answer_ && !owner_left_;
}

Result<std::string> CompileRun::ask_owner(const std::string& path) {
  std::unique_lock lock(mutex_);
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
    own.answers.push_back(
        {path, wire::FileKind::file, AnswerAccount::kFirstSource + source_number(path), {}, *text});
    return own.encode();
  }
  {
    const std::lock_guard lock(mutex_);
    if (owner_left_) {
      return Error(ErrorCode::timeout, "the client that had the files has gone");
    }
  }
  CUKILN_TRY(std::string body, here_ ? here_->questions.reply(path) : ask_owner(path));
  const auto answers = wire::Answers::decode(body);
  const std::string wrong = answers ? account_.learn(path, *answers) : "the answer cannot be read";
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

bool CompileRun::store_has_news() {
  const auto sets = setup_.store->find_sets(setup_.digest, setup_.canonical);
  const auto leaves = sets ? sets->leaves() : std::vector<SetTree::Leaf>();
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const SetTree::Leaf& leaf) { return !known_.contains(leaf.key); });
}

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

/// Whether the store has something of the fleet's now that it had not. Whether it holds for the
/// client's files is for the client to see.
bool CompileRun::fetch_from_remote(RemoteTier::Freshness freshness) {
  if (setup_.remote == nullptr) {
    return false;
  }
  OwnerCheck check(*this);
  auto entry = setup_.remote->find(setup_.canonical, check, freshness);
  if (!entry) {
    return false;
  }
  entry->source_text = source_text_of(setup_.order->request);
  const auto put = setup_.store->put(*entry);
  return put && (*put == PutOutcome::stored || *put == PutOutcome::already_there);
}

bool CompileRun::wait_for_flight(const std::string& lock, SteadyClock::time_point deadline) {
  for (milliseconds pause = kFirstPause; FileLock::holder(lock);
       pause = std::min(pause * 2, kLongestPause)) {
    if (cancelled_.load() || SteadyClock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(pause);
  }
  return true;
}

RunResult CompileRun::finish(const CompileResult& result) {
  const StoreEntry entry =
      make_entry(setup_.order->request, setup_.canonical, setup_.order->labels, result);
  bool stored = false;
  if (result.observed && !result.uses_time) {
    auto put = setup_.store->put(entry);
    stored = put && (*put == PutOutcome::stored || *put == PutOutcome::already_there);
    if (!put) {
      setup_.log.warn("{}: compiled, but not stored: {}", entry.labels.name, put.error().message());
    }
    if (setup_.remote != nullptr) {
      setup_.remote->put(entry);
    }
  }
  auto sealed = to_wire(entry).seal();
  if (!sealed) {
    return RunResult::of(sealed.error());
  }
  RunResult out;
  out.kind = RunResult::Kind::done;
  out.key = entry.key;
  out.sealed = std::make_shared<UniqueFd>(*std::move(sealed));
  out.terms.stored = stored;
  out.terms.observed = result.observed;
  out.terms.uses_time = result.uses_time;
  return out;
}

RunResult CompileRun::compile() {
  RunResult out;
  auto compiler = setup_.compilers->for_order(*setup_.order);
  if (!compiler) {
    out.kind = RunResult::Kind::declined;
    out.refusal = wire::Refusal::of(compiler.error());
    return out;
  }
  std::optional<RunResult> published;
  CompileJob job;
  job.request = &setup_.order->request;
  job.questions = this;
  job.labels = &setup_.order->labels;
  job.label = setup_.order->labels.name;
  job.timeout = setup_.timeout;
  job.cancelled = &cancelled_;
  job.trouble = &out.trouble;
  const std::string folder = setup_.store->flight_directory();
  if (!folder.empty()) {  // those who compile without the daemon hold it too
    job.flight_lock = join_path(folder, setup_.digest.hex() + ".lock");
    job.still_needed = [this] { return !store_has_news(); };
    job.publish = [&](const CompileResult& result) { published = finish(result); };
  }
  const auto deadline = SteadyClock::now() + setup_.timeout;
  for (;;) {
    auto outcome = (*compiler)->compile(job);
    if (!outcome) {
      const std::lock_guard lock(mutex_);
      out.kind = owner_left_ && outcome.error().code() == ErrorCode::timeout
                     ? RunResult::Kind::gone
                     : RunResult::Kind::failed;
      // Only what a compiler said of files depends on them.
      const bool of_files = outcome.error().code() == ErrorCode::compile_failed ||
                            outcome.error().code() == ErrorCode::incompatible ||
                            outcome.error().code() == ErrorCode::invalid_argument;
      out.refusal = wire::Refusal::of(outcome.error(), of_files ? looked_at_ : std::string());
      return out;
    }
    switch (outcome->state) {
      case CompileState::done:
      case CompileState::joined: return published ? *std::move(published) : finish(outcome->result);
      case CompileState::superseded: out.kind = RunResult::Kind::superseded; return out;
      case CompileState::busy:
        if (!wait_for_flight(job.flight_lock, deadline)) {
          job.flight_lock.clear();  // better compiled twice than never
        }
        if (store_has_news()) {
          out.kind = RunResult::Kind::superseded;
          return out;
        }
    }
  }
}

RunResult CompileRun::run() {
  if (const auto sets = setup_.store->find_sets(setup_.digest, setup_.canonical)) {
    for (const SetTree::Leaf& leaf : sets->leaves()) {
      known_.insert(leaf.key);
    }
  }
  RunResult superseded;
  superseded.kind = RunResult::Kind::superseded;
  if ((!setup_.again && !known_.empty()) || fetch_from_remote(RemoteTier::Freshness::usual)) {
    return superseded;
  }
  if (setup_.remote == nullptr) {
    return compile();
  }
  if (setup_.remote->found_while_waiting(setup_.canonical, setup_.timeout, cancelled_, [this] {
        return fetch_from_remote(RemoteTier::Freshness::now);
      })) {
    return superseded;
  }
  RunResult out = compile();
  setup_.remote->end_turn(setup_.canonical);
  return out;
}

}  // namespace cukiln::daemon
