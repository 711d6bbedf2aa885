// SPDX-License-Identifier: Apache-2.0
#include "core/loader/builder.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "core/base/file_lock.hpp"
#include "core/loader/fakes.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

/// A key's text.
const std::string kStolen = "stolen:" + std::string(43, 'A') + "=";

struct Fixture {
  ScratchFolder scratch;
  MapStore store;
  TextCompiler compiler;
  StatCache stats;
  LoaderTelemetry telemetry;

  std::mutex specs_mutex;
  std::list<ModuleSpec> specs;  // requests borrow their texts

  ModuleRequest request(const std::string& folder = "inc") {
    ModuleSpec spec;
    spec.name = "demo";
    spec.sources = {SourceText{"demo.cu", "void k();"}};
    spec.include = {scratch / folder};
    const std::lock_guard lock(specs_mutex);
    return *make_module_request(specs.emplace_back(std::move(spec)), {100, 'a'}, {"13.0.88", {}},
                                {});
  }
  Result<Built> build(Builder& builder, const ModuleRequest& r) {
    return builder.build(r, builder.look_up(r));
  }
  Builder builder(Builder::Options options = {}) {
    return {store, compiler, stats, telemetry, std::move(options)};
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a request is compiled once, then found") {
  scratch.write("inc/a.cuh", "A");
  Builder b = builder();
  const auto first = build(b, request());
  REQUIRE(first);
  CHECK(first->outcome == Outcome::compiled);
  CHECK(first->reason == "not in the store");
  const auto second = build(b, request());
  REQUIRE(second);
  CHECK(second->outcome == Outcome::hit);
  CHECK(second->entry.key == first->entry.key);
  CHECK(compiler.compiles == 1);
  CHECK(telemetry.stats().hits == 1);
  CHECK(telemetry.stats().misses_new == 1);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 42: a header changed, appeared or vanished is a miss that names it") {
  scratch.write("inc/a.cuh", "A");
  Builder b = builder();
  REQUIRE(build(b, request()));
  scratch.write("inc/a.cuh", "A2");
  CHECK(build(b, request())->reason == "header changed: " + (scratch / "inc/a.cuh"));
  scratch.write("inc/b.cuh", "B");
  const auto appeared = build(b, request());
  CHECK(appeared->reason == "header appeared: " + (scratch / "inc/b.cuh"));
  CHECK(appeared->entry.cubin.image.view() == "A2B");
  std::filesystem::remove(scratch / "inc/a.cuh");
  CHECK(build(b, request())->reason == "header vanished: " + (scratch / "inc/a.cuh"));
  scratch.write("inc/a.cuh", "A2");
  CHECK(build(b, request())->outcome == Outcome::hit);  // an earlier state is still known
  CHECK(compiler.compiles == 4);
}

TEST_CASE_FIXTURE(Fixture, "another folder with the same files hits; the key holds no real path") {
  scratch.write("inc/a.cuh", "A");
  scratch.write("elsewhere/deep/a.cuh", "A");
  Builder b = builder();
  const auto here = build(b, request("inc"));
  const auto there = build(b, request("elsewhere/deep"));
  CHECK(there->outcome == Outcome::hit);
  CHECK(here->entry.key == there->entry.key);
}

TEST_CASE_FIXTURE(Fixture, "threads with one request compile it once") {
  Builder b = builder();
  std::vector<std::thread> threads;
  std::atomic<int> hits{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto built = build(b, request());
      hits += built && built->outcome == Outcome::hit ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(compiler.compiles == 1);
  CHECK(hits == 7);
}

TEST_CASE_FIXTURE(Fixture, "a waiter takes the result only if its own files give it") {
  scratch.write("one/a.cuh", "1");
  scratch.write("two/a.cuh", "2");
  Builder b = builder();
  std::string images[2];
  std::thread first([&] { images[0] = build(b, request("one"))->entry.cubin.image.view(); });
  std::thread second([&] { images[1] = build(b, request("two"))->entry.cubin.image.view(); });
  first.join();
  second.join();
  CHECK(images[0] == "1");
  CHECK(images[1] == "2");
  CHECK(compiler.compiles == 2);
}

TEST_CASE_FIXTURE(Fixture, "another process's flight is waited for, with a bound") {
  Builder::Options options;
  options.lock_folder = scratch.path();
  compiler.busy_rounds = 3;
  Builder patient = builder(options);
  CHECK(build(patient, request())->outcome == Outcome::compiled);
  CHECK(telemetry.stats().singleflight_waits == 1);

  store.remove(ObjectName::of(build(patient, request())->entry.key)).value();
  compiler.busy_rounds = 1'000'000;  // an owner that never ends
  options.compile_timeout = std::chrono::milliseconds(50);
  Builder bounded = builder(options);
  CHECK(build(bounded, request())->outcome == Outcome::compiled);
}

TEST_CASE_FIXTURE(Fixture,
                  "who waits for a flight asks neither compiler nor store until it has ended") {
  Builder::Options options;
  options.lock_folder = scratch.path();
  Builder b = builder(options);
  const ModuleRequest waited = request();
  auto flight = FileLock::acquire(scratch / (waited.digest.hex() + ".lock"),
                                  FileLock::Mode::exclusive, std::chrono::milliseconds(0));
  REQUIRE(flight);
  std::thread waiter([&] {
    const auto built = build(b, waited);
    REQUIRE(built);
    CHECK(built->outcome == Outcome::hit);
    CHECK(built->reason == "another process stored it");
  });
  for (int i = 0; i < 2000 && store.questions == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(store.questions == 1);  // before it had to wait
  Builder other = builder();
  REQUIRE(build(other, waited));  // the flight's owner stores its result
  const int asked = store.questions;
  flight->release();
  waiter.join();
  CHECK(store.questions == asked + 1);
  CHECK(compiler.calls == 1);
  CHECK(telemetry.stats().singleflight_waits == 1);
}

TEST_CASE_FIXTURE(Fixture, "a wait for another process's flight ends when it is cancelled") {
  Builder::Options options;
  options.lock_folder = scratch.path();
  Builder b = builder(options);
  const ModuleRequest waited = request();
  const auto flight = FileLock::acquire(scratch / (waited.digest.hex() + ".lock"),
                                        FileLock::Mode::exclusive, std::chrono::milliseconds(0));
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.cancel();
  });
  const auto built = build(b, waited);
  canceller.join();
  REQUIRE_FALSE(built);
  CHECK(built.error().code() == ErrorCode::timeout);
  CHECK(built.error().message().find("cancelled") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "while it is cancelled nothing is compiled, and afterwards it is") {
  Builder b = builder();
  b.cancel();
  const auto cancelled = build(b, request());
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().code() == ErrorCode::timeout);
  CHECK(compiler.calls == 0);
  b.resume();
  REQUIRE(build(b, request()));
  CHECK(compiler.calls == 1);
}

TEST_CASE_FIXTURE(Fixture, "a call that is cancelled compiles nothing, and others go on") {
  Builder b = builder();
  const std::atomic<bool> cancelled{true};
  const ModuleRequest own = request();
  const auto ended = b.build(own, b.look_up(own), {}, &cancelled);
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code() == ErrorCode::timeout);
  CHECK(compiler.calls == 0);
  REQUIRE(build(b, own));
  CHECK(compiler.calls == 1);
}

TEST_CASE_FIXTURE(
    Fixture, "fault 45: a result that depends on the time is used and not stored, and says so") {
  compiler.uses_time = true;
  Builder b = builder();
  CHECK(build(b, request())->not_stored->message().find("__TIME__") != std::string::npos);
  CHECK(build(b, request())->outcome == Outcome::compiled);
  CHECK(store.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "an unobserved result is used and not stored") {
  compiler.observed = false;
  Builder b = builder();
  const auto unobserved = build(b, request());
  REQUIRE(unobserved->not_stored);
  CHECK(unobserved->not_stored->message().find("unobserved") != std::string::npos);
  CHECK(unobserved->not_stored->code() == ErrorCode::incompatible);
  CHECK(store.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "fault 5, fault 9: a store that fails costs the result nothing") {
  store.broken = true;
  Builder b = builder();
  const auto built = build(b, request());
  REQUIRE(built);
  CHECK(built->outcome == Outcome::compiled);
  CHECK(built->not_stored->message() == "the disk is full");
  CHECK(built->not_stored->code() == ErrorCode::io);
  CHECK(telemetry.stats().store_errors == 2);
}

TEST_CASE_FIXTURE(Fixture, "offline forbids a compile and says what is missing and why") {
  Builder::Options options;
  options.offline = true;
  Builder b = builder(options);
  const auto built = build(b, request());
  REQUIRE_FALSE(built);
  CHECK(built.error().code() == ErrorCode::not_found);
  CHECK(built.error().message().find("is not in the store and compiling") != std::string::npos);
  CHECK(compiler.compiles == 0);
}

TEST_CASE_FIXTURE(Fixture, "what is advised offline is what would make the miss a hit") {
  scratch.write("inc/a.cuh", "A");
  Builder filling = builder();
  REQUIRE(build(filling, request()));
  Builder::Options options;
  options.offline = true;
  Builder b = builder(options);
  const auto advice = [&](const ModuleRequest& r) {
    const auto built = build(b, r);
    REQUIRE_FALSE(built);
    return built.error().message().substr(built.error().message().find(';') + 2);
  };
  CHECK(advice(request("other")) ==
        "bring the files that it was compiled with, or compile it elsewhere with these");
  ModuleSpec other;
  other.sources = {SourceText{"other.cu", "void other();"}};
  const ModuleRequest unknown = *make_module_request(other, {100, 'a'}, {"13.0.88", {}}, {});
  CHECK(advice(unknown) == "compile it elsewhere and bring the store, or allow compiling");
  compiler.is_installed = false;
  CHECK(advice(unknown) == "compile it elsewhere and bring the store");
}

TEST_CASE_FIXTURE(
    Fixture, "fault 182: headers of CUDA count as recorded where there are none, and no others") {
  scratch.write("inc/a.cuh", "A");
  scratch.write("cuda/cuda.h", "13.0");
  scratch.write("newer/cuda.h", "13.5");
  compiler.headers = {"/cukiln/inc/0/a.cuh", "/cukiln/toolkit/cuda.h"};
  ModuleSpec spec;
  spec.name = "demo";
  spec.sources = {SourceText{"demo.cu", "void k();"}};
  spec.include = {scratch / "inc"};
  const auto with = [&](const std::vector<std::string>& toolkit) {
    return *make_module_request(spec, {100, 'a'}, {"13.0.88", {}}, toolkit);
  };
  Builder filling = builder();
  REQUIRE(build(filling, with({scratch / "cuda"}))->outcome == Outcome::compiled);
  Builder::Options options;
  options.offline = true;
  Builder b = builder(options);
  CHECK(build(b, with({scratch / "cuda"}))->reason == "in the store");
  compiler.is_installed = false;
  CHECK(build(b, with({scratch / "cuda"}))->reason == "in the store");
  const auto newer = build(b, with({scratch / "newer"}));
  REQUIRE_FALSE(newer);
  CHECK(newer.error().message().find("header changed: " + (scratch / "newer/cuda.h")) !=
        std::string::npos);
  CHECK(newer.error().message().find("CUDA's headers on this machine are not those of nvrtc "
                                     "13.0.88: install those, or remove them") !=
        std::string::npos);
  ModuleRequest none = with({});
  CHECK_FALSE(build(b, none));
  none.trust_recorded_toolkit();
  const auto hit = build(b, none);
  REQUIRE(hit);
  CHECK(hit->reason == "in the store, with CUDA's headers as recorded: there are none here");
  scratch.write("inc/a.cuh", "changed");
  CHECK_FALSE(build(b, none));
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 347: headers of CUDA count as recorded only where it is known whose they were") {
  scratch.write("cuda/cuda.h", "13.0");
  compiler.headers = {"/cukiln/toolkit/cuda.h"};
  ModuleSpec spec;
  spec.name = "demo";
  spec.sources = {SourceText{"demo.cu", "void k();"}};
  const auto with = [&](const std::vector<std::string>& toolkit) {
    return *make_module_request(spec, {100, 'a'}, {"13.0.88", {}}, toolkit);
  };
  const ModuleRequest filled = with({scratch / "cuda"});
  ModuleRequest none = with({});
  none.trust_recorded_toolkit();
  Builder::Options options;
  options.finds_toolkit = true;
  Builder filling = builder(options);
  StoreEntry entry = build(filling, filled)->entry;
  CHECK(entry.signer == kOwnToolkit);
  options.finds_toolkit = false;  // a setting named the folder
  CHECK(*store.remove(ObjectName::of(entry.key)));
  Builder overridden = builder(options);
  CHECK(build(overridden, filled)->entry.signer.empty());
  options.offline = true;
  Builder offline = builder(options);
  compiler.is_installed = false;
  CHECK(build(offline, none));  // this store compiled it
  const std::string fleet = "fleet:" + std::string(43, 'A') + "=";
  const auto found_from = [&](Origin origin, const std::string& signer) {
    CHECK(*store.remove(ObjectName::of(entry.key)));
    entry.origin = origin;
    entry.signer = signer;
    CHECK(store.put(entry));
    CHECK(build(offline, filled));  // its headers are here
    const auto built = build(offline, none);
    if (!built) {
      CHECK(offline.look_up(none).miss.why == Miss::Why::unvouched);
      CHECK(built.error().message().find("no headers of CUDA here to check the stored entry's") !=
            std::string::npos);
      CHECK(built.error().message().find("signed by the machine that compiled it with its own "
                                         "CUDA toolkit") != std::string::npos);
    }
    return built.has_value();
  };
  const std::string mark(kOwnToolkit);
  for (const Origin origin : {Origin::imported, Origin::remote}) {
    CHECK(found_from(origin, mark + " " + fleet));
    CHECK_FALSE(found_from(origin, fleet));
    CHECK_FALSE(found_from(origin, mark + " unsigned"));
    CHECK_FALSE(found_from(origin, mark));
    CHECK_FALSE(found_from(origin, ""));
  }
}

TEST_CASE_FIXTURE(
    Fixture, "fault 201: standard headers for device code do not count as recorded, as CUDA's do") {
  compiler.headers = {"/cukiln/toolkit/cstdint"};
  ModuleSpec spec;
  spec.name = "demo";
  spec.sources = {SourceText{"demo.cu", "void k();"}};
  const auto asked = [&](bool std_shims) {
    spec.std_shims = std_shims;
    ModuleRequest made = *make_module_request(spec, {100, 'a'}, {"13.0.88", {}}, {});
    made.trust_recorded_toolkit();
    return made;
  };
  Builder filling = builder();
  REQUIRE(build(filling, asked(true))->outcome == Outcome::compiled);
  Builder::Options options;
  options.offline = true;
  Builder b = builder(options);
  CHECK(build(b, asked(true))->reason == "in the store");
  compiler.is_installed = false;
  const auto without = build(b, asked(false));
  REQUIRE_FALSE(without);
  CHECK(
      without.error().message().find("(header vanished: /cukiln/std/cstdint) and compiling is "
                                     "forbidden (offline); compile it elsewhere with this version "
                                     "of cukiln and the same std_shims") != std::string::npos);
}

// fault 49
TEST_CASE_FIXTURE(
    Fixture,
    "failures are never stored; a compile error is tried again, a crash only after a pause") {
  compiler.error = ErrorCode::compile_failed;
  Builder b = builder();
  CHECK_FALSE(build(b, request()));
  CHECK_FALSE(build(b, request()));
  CHECK(compiler.compiles == 2);
  compiler.error = ErrorCode::internal;
  CHECK_FALSE(build(b, request()));
  const auto again = build(b, request());
  REQUIRE_FALSE(again);
  CHECK(again.error().message().find("it failed before") != std::string::npos);
  CHECK(compiler.compiles == 3);
  CHECK(store.size() == 0);
}

// fault 116
TEST_CASE_FIXTURE(Fixture, "what a revoked key signed is a miss, is removed, and compiled again") {
  scratch.write("inc/a.cuh", "1");
  Builder trusting = builder();
  StoreEntry entry = build(trusting, request())->entry;
  CHECK(*store.remove(ObjectName::of(entry.key)));
  entry.origin = Origin::imported;
  entry.signer = "other:" + std::string(43, 'B') + "= " + kStolen;
  CHECK(*store.put(entry) == PutOutcome::stored);
  CHECK(build(trusting, request())->outcome == Outcome::hit);

  Builder::Options options;
  options.revoked_keys = RevokedKeys({kStolen});
  Builder warned = builder(std::move(options));
  CHECK(warned.look_up(request(), Builder::Purpose::inspect).miss.why == Miss::Why::revoked);
  CHECK(store.size() == 1);  // who only looks removes nothing
  const auto built = build(warned, request());
  REQUIRE(built);
  CHECK(built->outcome == Outcome::compiled);
  CHECK(built->reason.find("signed by a key that was revoked") != std::string::npos);
  CHECK(telemetry.stats().misses_revoked == 1);
  CHECK(telemetry.stats().misses == 2);
  CHECK(built->entry.signer.empty());
  CHECK(build(warned, request())->outcome == Outcome::hit);
}

// fault 406
TEST_CASE_FIXTURE(Fixture,
                  "a stored entry whose signer may not sign the module is a miss, and goes") {
  scratch.write("inc/a.cuh", "1");
  Builder trusting = builder();
  StoreEntry entry = build(trusting, request())->entry;
  CHECK(*store.remove(ObjectName::of(entry.key)));
  entry.origin = Origin::imported;
  entry.signer = kStolen;
  const auto with_scopes = [&](const std::string& prefix) {
    Builder::Options options;
    options.key_scopes = KeyScopes({kStolen + " modules=" + prefix});
    return options;
  };
  Builder right = builder(with_scopes(request().name));
  CHECK(*store.put(entry) == PutOutcome::stored);
  CHECK(build(right, request())->outcome == Outcome::hit);
  // Under a name that its signer chose: what counts is also what this host calls the module.
  CHECK(*store.remove(ObjectName::of(entry.key)));
  entry.labels.name = "nvfp4_" + request().name;
  CHECK(*store.put(entry) == PutOutcome::stored);
  Builder narrow = builder(with_scopes("nvfp4_"));
  CHECK(narrow.look_up(request(), Builder::Purpose::inspect).miss.why == Miss::Why::out_of_scope);
  const auto built = build(narrow, request());
  REQUIRE(built);
  CHECK(built->outcome == Outcome::compiled);
  CHECK(built->reason.find("not trusted for this module") != std::string::npos);
  CHECK(telemetry.stats().misses_revoked == 1);
  CHECK(build(narrow, request())->outcome == Outcome::hit);
}

namespace {

/// A program of NVRTC's own interface, and what its caller gets.
struct Programs : Fixture {
  ModuleRequest program() {
    ModuleRequest made = request();
    made.request.program = {OutputKind::ptx, "/cukiln/work"};
    made.canonical = made.request.canonical();
    made.digest = CompileRequest::digest_of(made.canonical);
    return made;
  }
  Result<Built> compile(Builder& builder, NvrtcFailure& failure) {
    failure = {};
    const ModuleRequest made = program();
    return builder.build(made, builder.look_up(made), {}, nullptr, nullptr, &failure);
  }
  NvrtcFailure refused(Builder& builder) {
    NvrtcFailure failure;
    const auto built = compile(builder, failure);
    CHECK((!built && built.error().code() == ErrorCode::compile_failed));
    CHECK(failure.code == 6);
    return failure;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Programs, "fault 412: a program that NVRTC refused is not compiled again") {
  scratch.write("inc/a.cuh", "A");
  compiler.refuses = true;
  {
    Builder b = builder();
    CHECK(refused(b).log == "a.cu(1): error: A");
    CHECK(refused(b).log == "a.cu(1): error: A");
  }
  CHECK(compiler.compiles == 1);
  CHECK(telemetry.stats().failed == 1);
  CHECK(telemetry.stats().misses == 1);
  Builder::Options offline;
  offline.offline = true;
  Builder b = builder(offline);
  CHECK(refused(b).log == "a.cu(1): error: A");
  CHECK(compiler.compiles == 1);
}

TEST_CASE_FIXTURE(Programs, "fault 412: threads with one program that fails compile it once") {
  compiler.refuses = true;
  Builder b = builder();
  std::atomic<int> same{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      NvrtcFailure failure;
      const auto built = compile(b, failure);
      same += !built && failure.code == 6 && failure.log == "a.cu(1): error: " ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(same == 8);
  CHECK(compiler.compiles == 1);
}

TEST_CASE_FIXTURE(Programs,
                  "fault 413: a header that appears, changes or vanishes is tried again") {
  compiler.refuses = true;
  Builder b = builder();
  CHECK(refused(b).log == "a.cu(1): error: ");
  scratch.write("inc/b.cuh", "B");
  CHECK(refused(b).log == "a.cu(1): error: B");
  scratch.write("inc/b.cuh", "B2");
  compiler.refuses = false;
  NvrtcFailure failure;
  CHECK(compile(b, failure)->outcome == Outcome::compiled);
  CHECK(failure.code == 0);
  std::filesystem::remove(scratch / "inc/b.cuh");
  CHECK(refused(b).log == "a.cu(1): error: ");  // as at first
  scratch.write("inc/b.cuh", "B2");
  CHECK(compile(b, failure)->outcome == Outcome::hit);
  CHECK(compiler.compiles == 3);
}

TEST_CASE_FIXTURE(Programs, "fault 414: only what the front end refused is remembered") {
  Builder b = builder();
  compiler.refuses = true;
  compiler.is_of_front_end = false;
  CHECK(refused(b).log == "a.cu(1): error: ");
  CHECK(refused(b).log == "a.cu(1): error: ");
  CHECK(compiler.compiles == 2);
  compiler.is_of_front_end = true;
  scratch.write("inc/a.cuh", std::string(300'000, 'a'));  // a log of that size
  CHECK(refused(b).log.size() > 300'000);
  CHECK(refused(b).log.size() > 300'000);
  CHECK(compiler.compiles == 4);
  CHECK(store.size() == 0);
  for (const ErrorCode code : {ErrorCode::timeout, ErrorCode::internal, ErrorCode::incompatible}) {
    compiler.error = code;
    Builder fresh = builder();  // it has no pause after a crash
    NvrtcFailure failure;
    CHECK(compile(fresh, failure).error().code() == code);
    CHECK(failure.code == 0);
  }
  CHECK(store.size() == 0);
}

TEST_CASE_FIXTURE(Programs, "fault 419: who does not ask for failures compiles again") {
  compiler.refuses = true;
  Builder b = builder();
  refused(b);
  CHECK(store.size() == 1);
  const ModuleRequest made = program();
  for (int i = 0; i < 2; ++i) {
    CHECK(build(b, made).error().code() == ErrorCode::compile_failed);
    CHECK(build(b, request()).error().code() == ErrorCode::compile_failed);
  }
  CHECK(compiler.compiles == 5);
  CHECK(store.size() == 1);
}
