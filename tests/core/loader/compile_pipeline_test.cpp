// SPDX-License-Identifier: Apache-2.0
#include "core/loader/compile_pipeline.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "core/base/file_lock.hpp"
#include "core/loader/fakes.hpp"
#include "core/loader/make_entry.hpp"
#include "core/loader/module_request.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ResultFrom = CompilePipeline::ResultFrom;

namespace {

/// A fleet of two machines: this one, and a peer that may have a result.
class FakeRemote final : public RemoteTier {
 public:
  std::optional<StoreEntry> find(ByteView, std::string_view, SetCheck& check,
                                 Freshness freshness) override {
    ++(freshness == Freshness::usual ? usual_lookups : urgent_lookups);
    const bool is_there = freshness == Freshness::usual ? has_result : peer_result;
    return is_there && check.holds(entry.dependencies, entry.may_trust_toolkit())
               ? std::optional(entry)
               : std::nullopt;
  }
  std::optional<RemoteLease> await_peer_or_lease(ByteView request, milliseconds, CancelFlags,
                                                 const std::function<bool()>& found) override {
    ++held;
    RemoteLease lease(*this, request);
    return found() ? std::nullopt : std::optional(std::move(lease));
  }
  std::optional<StoreBlob> get(const BlobName&, Freshness) override { return std::nullopt; }
  void put(const StoreObject&) override {
    held_at_put = held;
    ++uploads;
  }

  StoreEntry entry;
  bool has_result = false;   // before anything waits
  bool peer_result = false;  // while this machine waits for the lease
  int usual_lookups = 0, urgent_lookups = 0;
  int held = 0, held_at_put = 0, uploads = 0;

 private:
  void release_lease(ByteView) override { --held; }
};

/// Has other things happen in the middle of a compile.
class ScriptedCompiler final : public Compiler {
 public:
  Result<Toolchain> toolchain() override { return Toolchain{"13.0.88", {}}; }
  Result<Toolchain> linker() override { return toolchain(); }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob& job) override {
    ++calls;
    return script(job);
  }
  std::function<Result<CompileOutcome>(const CompileJob&)> script;
  int calls = 0;
};

struct Fixture : CompilePipeline::Caller {
  ScratchFolder scratch;
  MapStore store;
  TextCompiler text_compiler;
  ScriptedCompiler scripted;
  Compiler* used = &text_compiler;
  FakeRemote remote;
  InFlight in_flight;
  std::atomic<bool> cancelled{false};
  Logger log;
  std::string lock_folder;
  milliseconds timeout{10'000};
  bool reads_from_store = false;
  CompileFailureKind trouble = CompileFailureKind::other;

  ModuleSpec spec;
  ModuleRequest request;
  std::unique_ptr<FileServer> served;
  std::optional<FileCheck> check;

  bool stored_later = false;
  int lookups = 0, thread_waits = 0, process_waits = 0, timed_out = 0, failures = 0;
  std::optional<Error> forbidden;
  bool is_delegated = false;

  Fixture() {
    spec.name = "demo";
    spec.sources = {SourceText{"demo.cu", "void k();"}};
    request = *make_module_request(spec, {100, 'a'}, {"13.0.88", {}}, {});
    CompileResult result;
    result.cubin.image = SharedBytes(std::string("peer"));
    remote.entry = make_entry(request.request, request.canonical, request.labels, result);
  }
  bool look_up_again() override {
    ++lookups;
    return stored_later;
  }
  SetCheck& remote_check() override {
    check.reset();
    served = request.files(nullptr);
    return check.emplace(*served);
  }
  Result<void> admit() override { return forbidden ? Result<void>(*forbidden) : Result<void>(); }
  bool delegates() override { return is_delegated; }
  Result<Compiler*> compiler() override { return used; }
  FileSource files() override {
    check.reset();
    served = request.files(nullptr);
    return FileSource(*served);
  }
  void waited_for_thread() override { ++thread_waits; }
  void waiting_for_process(const std::string&) override { ++process_waits; }
  void wait_timed_out(const std::string&) override { ++timed_out; }
  void compile_failed(const Error&) override { ++failures; }

  Result<CompilePipeline::Outcome> run() {
    CompilePipeline pipeline(*this, {.request = request.request,
                                     .canonical = request.canonical,
                                     .digest = request.digest,
                                     .label = request.name,
                                     .labels = request.labels,
                                     .store = store,
                                     .lock_folder = lock_folder,
                                     .cancelled = cancelled,
                                     .log = log,
                                     .timeout = timeout,
                                     .remote = &remote,
                                     .in_flight = &in_flight,
                                     .reads_from_store = reads_from_store,
                                     .trouble = &trouble});
    return pipeline.run();
  }
  ResultFrom result_of_run() {
    const auto outcome = run();
    REQUIRE(outcome);
    return outcome->from;
  }
  std::string lock_path() const { return scratch / (request.digest.hex() + ".lock"); }
  FileLock hold_lock() const {
    return *FileLock::acquire(lock_path(), FileLock::Mode::exclusive, milliseconds(0));
  }
  /// Another thread could begin the same request.
  bool nothing_is_in_flight() { return !InFlight::Record(in_flight, request.digest).waited(); }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a compile's result is put once and uploaded once, with the lease held") {
  const std::string folders[] = {"", scratch.path()};
  for (const std::string& folder : folders) {
    lock_folder = folder;
    const int uploads = remote.uploads;
    const int puts = store.puts;
    const auto outcome = run();
    REQUIRE(outcome);
    CHECK(outcome->from == ResultFrom::compiled);
    CHECK_FALSE(outcome->not_stored);
    CHECK(store.puts == puts + 1);
    CHECK(remote.uploads == uploads + 1);
    CHECK(remote.held_at_put == 1);
    CHECK(remote.held == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "the result is committed before the lock is released, and not again") {
  lock_folder = scratch.path();
  used = &scripted;
  std::size_t stored_under_lock = 0;
  scripted.script = [&](const CompileJob& job) -> Result<CompileOutcome> {
    CHECK(job.guard.lock_path == lock_path());
    CHECK(job.guard.still_needed());
    CompileOutcome outcome;
    job.guard.publish(outcome.result);
    stored_under_lock = store.size();
    return outcome;
  };
  CHECK(result_of_run() == ResultFrom::compiled);
  CHECK(stored_under_lock == 1);
  CHECK(store.puts == 1);
  CHECK(remote.uploads == 1);
}

TEST_CASE_FIXTURE(Fixture, "a compile that fails releases the lease and the in-flight record") {
  text_compiler.error = ErrorCode::compile_failed;
  const auto outcome = run();
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::compile_failed);
  CHECK(failures == 1);
  CHECK(remote.held == 0);
  CHECK(remote.uploads == 0);
  CHECK(nothing_is_in_flight());
}

TEST_CASE_FIXTURE(Fixture, "a compile that throws releases the lease and the in-flight record") {
  used = &scripted;
  scripted.script = [&](const CompileJob&) -> Result<CompileOutcome> {
    CHECK(remote.held == 1);
    throw std::bad_alloc();
  };
  CHECK_THROWS_AS(run(), std::bad_alloc);
  CHECK(remote.held == 0);
  CHECK(nothing_is_in_flight());
}

TEST_CASE_FIXTURE(Fixture, "a commit that throws releases the lease and the in-flight record") {
  store.throws = true;
  CHECK_THROWS_AS(run(), std::bad_alloc);
  CHECK(remote.held == 0);
  CHECK(remote.uploads == 0);
  CHECK(nothing_is_in_flight());
}

TEST_CASE_FIXTURE(Fixture, "a caller that forbids the compile ends it before anything waits") {
  forbidden = Error(ErrorCode::sealed, "no");
  const auto outcome = run();
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::sealed);
  CHECK(remote.usual_lookups == 1);
  CHECK(remote.urgent_lookups == 0);
  CHECK(text_compiler.calls == 0);
  CHECK(failures == 0);
  CHECK(nothing_is_in_flight());
}

TEST_CASE_FIXTURE(Fixture, "a remote entry is stored here, and is not uploaded") {
  remote.has_result = true;
  const auto outcome = run();
  REQUIRE(outcome);
  CHECK(outcome->from == ResultFrom::remote_store);
  CHECK(outcome->entry.cubin.image.view() == "peer");
  CHECK(outcome->entry.source_text == "void k();");
  CHECK(store.puts == 1);
  CHECK(remote.uploads == 0);
  CHECK(text_compiler.calls == 0);
}

TEST_CASE_FIXTURE(Fixture, "a peer's result is used while this machine waits for its lease") {
  remote.peer_result = true;
  CHECK(result_of_run() == ResultFrom::other_machine);
  CHECK(text_compiler.calls == 0);
  CHECK(store.puts == 1);
  CHECK(remote.held == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "a remote entry that cannot be stored serves who need not read the store") {
  remote.has_result = true;
  store.broken = true;
  const auto outcome = run();
  REQUIRE(outcome);
  CHECK(outcome->from == ResultFrom::remote_store);
  REQUIRE(outcome->not_stored);
  CHECK(outcome->not_stored->reason == NotStored::error);
  CHECK(outcome->not_stored->text == "the disk is full");

  reads_from_store = true;
  CHECK(result_of_run() == ResultFrom::compiled);
}

TEST_CASE_FIXTURE(Fixture,
                  "a compiler that delegates leaves lease, first look at the lock and upload") {
  is_delegated = true;
  lock_folder = scratch.path();
  const FileLock other = hold_lock();
  CHECK(result_of_run() == ResultFrom::compiled);
  CHECK(process_waits == 0);
  CHECK(remote.urgent_lookups == 0);
  CHECK(remote.uploads == 0);
  CHECK(store.puts == 1);
}

TEST_CASE_FIXTURE(Fixture, "a result that a peer stored is not put again") {
  used = &scripted;
  for (const CompileState state : {CompileState::joined, CompileState::done}) {
    scripted.script = [&](const CompileJob&) -> Result<CompileOutcome> {
      CompileOutcome outcome;
      outcome.state = state;
      outcome.stored = true;
      return outcome;
    };
    const auto outcome = run();
    REQUIRE(outcome);
    CHECK(outcome->from ==
          (state == CompileState::joined ? ResultFrom::joined : ResultFrom::compiled));
    CHECK(outcome->stored_by_peer);
  }
  CHECK(store.puts == 0);
}

TEST_CASE_FIXTURE(Fixture, "the wait for a lock ends at the deadline, and the compile takes none") {
  lock_folder = scratch.path();
  timeout = milliseconds(60);
  used = &scripted;
  scripted.script = [&](const CompileJob& job) -> Result<CompileOutcome> {
    CHECK(job.guard.lock_path.empty());
    return CompileOutcome();
  };
  const FileLock other = hold_lock();
  const auto began = steady_clock::now();
  CHECK(result_of_run() == ResultFrom::compiled);
  CHECK(steady_clock::now() - began >= timeout);
  CHECK(process_waits == 1);
  CHECK(timed_out == 1);
  CHECK(lookups == 1);  // once, when the wait is over
  CHECK(store.puts == 1);
}

TEST_CASE_FIXTURE(Fixture, "a cancelled wait for a lock compiles nothing and releases the lease") {
  lock_folder = scratch.path();
  const FileLock other = hold_lock();
  cancelled = true;
  const auto outcome = run();
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::timeout);
  CHECK(text_compiler.calls == 0);
  CHECK(failures == 0);
  CHECK(remote.held == 0);
  CHECK(nothing_is_in_flight());
}

TEST_CASE_FIXTURE(Fixture,
                  "what another process stored is used: after its lock, and under this one") {
  lock_folder = scratch.path();
  stored_later = true;
  {
    FileLock other = hold_lock();
    std::thread ends([&] {
      std::this_thread::sleep_for(milliseconds(30));
      other.release();
    });
    CHECK(result_of_run() == ResultFrom::other_process);
    ends.join();
  }
  CHECK(text_compiler.calls == 0);
  CHECK(remote.held == 0);

  used = &scripted;
  scripted.script = [&](const CompileJob& job) -> Result<CompileOutcome> {
    CompileOutcome outcome;
    outcome.state = job.guard.still_needed() ? CompileState::done : CompileState::superseded;
    return outcome;
  };
  CHECK(result_of_run() == ResultFrom::other_process);
  CHECK(scripted.calls == 1);
  CHECK(store.puts == 0);
  CHECK(remote.uploads == 0);
}

TEST_CASE_FIXTURE(Fixture, "a compiler that finds the lock taken is asked again after the wait") {
  lock_folder = scratch.path();
  text_compiler.busy_rounds = 2;
  CHECK(result_of_run() == ResultFrom::compiled);
  CHECK(text_compiler.calls == 3);
  CHECK(process_waits == 1);
  CHECK(store.puts == 1);
}

TEST_CASE_FIXTURE(Fixture, "a second thread waits for the first, and looks up when it has ended") {
  stored_later = true;
  std::optional<InFlight::Record> first(std::in_place, in_flight, request.digest);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(30));
    first.reset();
  });
  CHECK(result_of_run() == ResultFrom::other_thread);
  ends.join();
  CHECK(thread_waits == 1);
  CHECK(lookups == 1);
  CHECK(text_compiler.calls == 0);
}

TEST_CASE_FIXTURE(Fixture, "what must not be kept is neither stored nor uploaded") {
  text_compiler.uses_time = true;
  const auto timed = run();
  REQUIRE(timed);
  CHECK(timed->not_stored->reason == NotStored::time);
  text_compiler.uses_time = false;
  text_compiler.observed = false;
  const auto unobserved = run();
  REQUIRE(unobserved);
  CHECK(unobserved->not_stored->reason == NotStored::unobserved);
  CHECK_FALSE(unobserved->observed);
  CHECK(store.puts == 0);
  CHECK(remote.uploads == 0);
}
