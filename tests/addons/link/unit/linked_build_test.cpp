// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <list>
#include <string>

#include "core/loader/builder.hpp"
#include "core/loader/fakes.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

struct Fixture {
  ScratchFolder scratch;
  MapStore store;
  TextCompiler compiler;
  StatCache stats;
  LoaderTelemetry telemetry;
  std::list<ModuleSpec> specs;  // requests borrow their texts

  ModuleRequest linked(const std::string& text = "void f();") {
    ModuleSpec spec;
    spec.name = "demo";
    spec.sources = {SourceText{"a.cu", "void k();"}, SourceText{"b.cu", text}};
    spec.include = {scratch / "inc"};
    spec.link = LinkMode::rdc;
    return *make_module_request(specs.emplace_back(std::move(spec)), {100, 'a'}, {"13.0.88", {}},
                                {}, nullptr, {"13.0", {}});
  }
  Result<Built> build(Builder& builder, const ModuleRequest& r) {
    return builder.build(r, builder.look_up(r));
  }
  Builder builder(Builder::Options options = {}) {
    return {store, compiler, stats, telemetry, std::move(options)};
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a module that is linked is one entry, and so is each of its sources") {
  scratch.write("inc/a.cuh", "A");
  Builder b = builder();
  const auto first = build(b, linked());
  REQUIRE(first);
  CHECK(first->outcome == Outcome::compiled);
  CHECK(first->entry.cubin.image.view() == "a.cu:A;b.cu:A;");
  CHECK(first->entry.dependencies.observations.size() == 2);  // each path once
  CHECK(compiler.compiles == 3);
  CHECK(store.size() == 3);
  const std::uint64_t hits = telemetry.stats().hits;
  const auto second = build(b, linked());
  REQUIRE(second);
  CHECK(second->outcome == Outcome::hit);
  CHECK(second->entry.key == first->entry.key);
  CHECK(telemetry.stats().hits == hits + 1);  // the parts are not looked up
  CHECK(compiler.compiles == 3);

  CHECK(build(b, linked("void g();"))->outcome == Outcome::compiled);
  CHECK(compiler.compiles == 5);  // the source that changed, and the link
  scratch.write("inc/a.cuh", "A2");
  const auto changed = build(b, linked());
  REQUIRE(changed);
  CHECK(changed->reason == "header changed: " + (scratch / "inc/a.cuh"));
  CHECK(changed->entry.cubin.image.view() == "a.cu:A2;b.cu:A2;");
  CHECK(compiler.compiles == 8);
}

TEST_CASE_FIXTURE(Fixture, "a link of a source that may not be stored is not stored either") {
  compiler.uses_time = true;
  Builder b = builder();
  const auto dated = build(b, linked());
  REQUIRE(dated);
  CHECK(dated->not_stored->message().find("__TIME__") != std::string::npos);
  compiler.uses_time = false;
  compiler.observed = false;
  const auto unobserved = build(b, linked());
  REQUIRE(unobserved);
  CHECK(unobserved->not_stored->message().find("unobserved") != std::string::npos);
  CHECK(store.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a source that does not compile is the error of its module's link") {
  compiler.error = ErrorCode::compile_failed;
  Builder b = builder();
  const auto failed = build(b, linked());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code() == ErrorCode::compile_failed);
  CHECK(compiler.compiles == 2);
  Builder offline = builder({.offline = true});
  const auto missing = build(offline, linked());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == ErrorCode::not_found);
  CHECK(compiler.compiles == 2);  // no part either
}
