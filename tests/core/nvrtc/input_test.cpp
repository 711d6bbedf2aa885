// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "support/forked.hpp"
#include "support/loader_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

TEST_CASE_FIXTURE(
    LoaderFixture,
    "fault 39: CRLF, invalid UTF-8 and a missing final newline are passed unchanged") {
  const auto opened = open();
  const char* const texts[] = {
      "extern \"C\" __global__ void k() {}\r\n",
      "extern \"C\" __global__ void k() {}\n",
      "// \xff\xfe\xc0\nextern \"C\" __global__ void k() {}",
  };
  std::vector<std::string> keys;
  for (const char* text : texts) {
    const std::string source = scratch.write("k.cu", text);
    const ModuleReport report = only(opened->compile(spec(source)));
    CHECK(report.outcome == Outcome::compiled);
    keys.push_back(report.key.hex());
    CHECK(only(opened->compile(spec(source))).outcome == Outcome::hit);
  }
  std::sort(keys.begin(), keys.end());
  CHECK(std::unique(keys.begin(), keys.end()) == keys.end());

  const auto bom = opened->compile(  // NVRTC takes none, and says so
      spec(scratch.write("k.cu",
                         "\xef\xbb\xbf"
                         "extern \"C\" __global__ void k() {}")));
  REQUIRE(bom);
  REQUIRE(bom->front().error);
  CHECK(bom->front().error->code() == ErrorCode::compile_failed);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "fault 39: a NUL byte is refused, because NVRTC would stop reading there") {
  const std::string source =
      scratch.write("k.cu", std::string("extern \"C\" __global__ void k() {}\n\0int x = ;", 44));
  const auto reports = open()->compile(spec(source));
  REQUIRE(reports);
  REQUIRE(reports->front().error);
  CHECK(reports->front().error->code() == ErrorCode::invalid_argument);
  CHECK(reports->front().error->message().find("offset 34") != std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "fault 39: a NUL byte is refused in everything that becomes a C string") {
  const std::string source = scratch.write("k.cu", "extern \"C\" __global__ void k() {}\n");
  const std::string nul("a\0b", 3);
  const auto opened = open();
  const auto refused = [&](const std::function<void(ModuleSpec&)>& spoil) {
    ModuleSpec spoilt = spec(source);
    spoil(spoilt);
    const auto reports = opened->compile(spoilt);
    const Error* error = !reports                 ? &reports.error()
                         : reports->front().error ? &*reports->front().error
                                                  : nullptr;
    return error != nullptr && error->code() == ErrorCode::invalid_argument &&
           error->message().find("NUL byte at offset 1") != std::string::npos;
  };
  CHECK(refused([&](ModuleSpec& module) { module.sources = {SourceFile{nul}}; }));
  CHECK(refused([&](ModuleSpec& module) { module.headers = {SourceLiteral{nul, ""}}; }));
  CHECK(refused([&](ModuleSpec& module) { module.include = {nul}; }));
  CHECK(refused([&](ModuleSpec& module) { module.flags = {nul}; }));
  CHECK(refused([&](ModuleSpec& module) { module.names = {nul}; }));
  CHECK(refused([&](ModuleSpec& module) { module.define[nul] = "1"; }));
  CHECK(refused([&](ModuleSpec& module) { module.define["A"] = nul; }));
}

TEST_CASE_FIXTURE(
    LoaderFixture,
    "fault 40: an include cycle, deep nesting and macro includes end in a result or an error") {
  const auto opened = open();
  scratch.write("cycle.cuh", "#include \"cycle.cuh\"\n");
  const auto cycle = opened->compile(spec(scratch.write("c.cu", "#include \"cycle.cuh\"\n")));
  REQUIRE(cycle);
  REQUIRE(cycle->front().error);
  CHECK(cycle->front().error->code() == ErrorCode::compile_failed);

  for (int i = 0; i < 150; ++i) {
    scratch.write("deep" + std::to_string(i) + ".cuh",
                  "#include \"deep" + std::to_string(i + 1) + ".cuh\"\n");
  }
  scratch.write("deep150.cuh", "#define DEPTH 150\n");
  const std::string deep = scratch.write(
      "d.cu", "#include \"deep0.cuh\"\nextern \"C\" __global__ void k(int* x) { *x = DEPTH; }\n");
  CHECK(only(opened->compile(spec(deep))).outcome == Outcome::compiled);
  CHECK(only(opened->compile(spec(deep))).outcome == Outcome::hit);
  scratch.write("deep150.cuh", "#define DEPTH 151\n");
  CHECK(only(opened->compile(spec(deep))).outcome == Outcome::compiled);

  const std::string by_macro =
      scratch.write("m.cu",
                    "#define WHERE \"deep150.cuh\"\n#include WHERE\nextern \"C\" __global__ void "
                    "k(int* x) { *x = DEPTH; }\n");
  CHECK(only(opened->compile(spec(by_macro))).outcome == Outcome::compiled);
  scratch.write("deep150.cuh", "#define DEPTH 152\n");
  CHECK(only(opened->compile(spec(by_macro))).outcome == Outcome::compiled);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "fault 30: the forked child of a process with workers looks up and compiles") {
  const auto opened = open();
  const std::string known = scratch.write("known.cu", "extern \"C\" __global__ void k() {}");
  const std::string other = scratch.write("other.cu", "extern \"C\" __global__ void o() {}");
  only(opened->compile(spec(known)));
  CHECK(status_of_child([&] {
          ::alarm(60);
          const auto hit = opened->compile(spec(known));
          const auto compiled = opened->compile(spec(other));
          const bool ok = hit && hit->front().outcome == Outcome::hit && compiled &&
                          compiled->front().outcome == Outcome::compiled;
          return ok ? 0 : 1;
        }) == 0);
  CHECK(only(opened->compile(spec(known))).outcome == Outcome::hit);  // the parent's are untouched
  CHECK(only(opened->compile(spec(other))).outcome == Outcome::hit);
}
