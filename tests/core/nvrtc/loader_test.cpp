// SPDX-License-Identifier: Apache-2.0
#include "support/loader_fixture.hpp"

#include <thread>

#include "support/fake_cuda.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr const char* kKernel = R"(#include "tile.cuh"
extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= TILE; }
)";

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture,
                  "a store moves between checkouts: other folder, same key, same bytes") {
  scratch.write("one/k.cu", kKernel);
  scratch.write("one/inc/tile.cuh", "#define TILE 3");
  scratch.write("far/away/two/k.cu", kKernel);
  scratch.write("far/away/two/other/tile.cuh", "#define TILE 3");
  ModuleSpec one = spec(scratch / "one/k.cu");
  one.include = {scratch / "one/inc"};
  one.flags = {"-lineinfo"};
  ModuleSpec two = spec(scratch / "far/away/two/k.cu");
  two.include = {scratch / "far/away/two/other"};
  two.flags = {"-lineinfo"};
  const auto a = only(open()->compile(one));
  const auto moved = open();
  const auto b = only(moved->compile(two));
  CHECK(a.outcome == Outcome::compiled);
  CHECK(b.outcome == Outcome::hit);
  CHECK(a.key == b.key);
  // and compiled there instead, the bytes are the same
  StoreOptions elsewhere = store_options();
  elsewhere.directory = scratch / "another store";
  const auto fresh = open(elsewhere);
  const auto c = only(fresh->compile(two));
  CHECK(c.outcome == Outcome::compiled);
  CHECK(c.key == a.key);
  const std::string image = *moved->cubin(a.key);
  CHECK(image == *fresh->cubin(c.key));
  CHECK(image.find(scratch.path()) == std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "a preload's error names the module once, and of several how many") {
  const ModuleSpec absent = spec(scratch / "absent.cu");
  ModuleSpec named = absent;
  named.name = "scaling";
  const ModuleSpec broken = spec(scratch.write("broken.cu", "int oops = ;"));
  const auto opened = open();
  const auto starts = [&](const std::vector<ModuleSpec>& modules, const std::string& text) {
    const auto report = opened->preload(Manifest(modules), without_load());
    REQUIRE_FALSE(report);
    CAPTURE(report.error().message());
    CHECK(report.error().message().starts_with(text));
  };
  starts({absent}, "cannot open " + (scratch / "absent.cu"));
  starts({named}, "scaling: cannot open " + (scratch / "absent.cu"));
  starts({broken}, "broken does not compile for sm_100a");
  starts({named, broken}, "2 of 2 modules failed; the first, scaling: cannot open ");
}

// fault 42
TEST_CASE_FIXTURE(LoaderFixture,
                  "header edited, appeared earlier, vanished: each is a miss that names it") {
  const std::string source = scratch.write("k.cu", kKernel);
  scratch.write("late/tile.cuh", "#define TILE 3");
  ModuleSpec module = spec(source);
  module.include = {scratch / "early", scratch / "late"};
  const auto opened = open();
  CHECK(only(opened->compile(module)).outcome == Outcome::compiled);
  CHECK(only(opened->compile(module)).outcome == Outcome::hit);

  scratch.write("late/tile.cuh", "#define TILE 4");  // the same size
  CHECK(only(opened->compile(module)).reason == "header changed: " + (scratch / "late/tile.cuh"));

  scratch.write("early/tile.cuh", "#define TILE 5");
  CHECK(only(opened->compile(module)).reason == "header appeared: " + (scratch / "early/tile.cuh"));

  std::filesystem::remove(scratch / "early/tile.cuh");
  CHECK(only(opened->compile(module)).outcome == Outcome::hit);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "fault 41: a missing header is an error with the user's file and line; once "
                  "there, it compiles") {
  const std::string source = scratch.write("k.cu", kKernel);
  ModuleSpec module = spec(source);
  module.include = {scratch / "inc"};
  const auto opened = open();
  const auto failed = opened->compile(module);
  REQUIRE(failed);
  const ModuleReport& report = failed->front();
  CHECK(report.outcome == Outcome::failed);
  REQUIRE(report.error);
  CHECK(report.error->code() == ErrorCode::compile_failed);
  CAPTURE(report.error->message());
  CAPTURE(report.error->log());
  CHECK(report.error->log().find(source + "(1)") != std::string::npos);
  CHECK(report.error->log().find("/cukiln/") == std::string::npos);
  scratch.write("inc/tile.cuh", "#define TILE 2");
  CHECK(only(opened->compile(module)).outcome == Outcome::compiled);
}

// fault 106
TEST_CASE_FIXTURE(LoaderFixture,
                  "warnings have the user's own paths, also of a hit in another checkout") {
  const auto make = [&](const std::string& folder) {
    scratch.write(folder + "/inc/w.h", "__device__ inline void f() { int unused_one; }\n");
    ModuleSpec module = spec(
        scratch.write(folder + "/k.cu",
                      "#include <w.h>\nextern \"C\" __global__ void k() { int unused_two; }\n"));
    module.include = {scratch / (folder + "/inc")};
    return module;
  };
  const auto opened = open();
  for (const std::string folder : {"one", "two"}) {
    const ModuleReport report = only(opened->compile(make(folder)));
    CAPTURE(report.log);
    CHECK(report.outcome == (folder == "one" ? Outcome::compiled : Outcome::hit));
    CHECK(report.log.find((scratch / (folder + "/inc/w.h")) + "(1): warning") != std::string::npos);
    CHECK(report.log.find((scratch / (folder + "/k.cu")) + "(2): warning") != std::string::npos);
    CHECK(report.log.find("/cukiln/") == std::string::npos);
  }
}

TEST_CASE_FIXTURE(
    LoaderFixture,
    "fault 47: hits are served without NVRTC, and a miss says where it was searched") {
  const std::string source = scratch.write("k.cu", "extern \"C\" __global__ void k() {}");
  const auto key = only(open()->compile(spec(source))).key;
  LoaderOptions without = loader_options();
  without.nvrtc_library = scratch / "no/libnvrtc.so.13";
  const auto opened = open(without);
  const auto hit = only(opened->compile(spec(source)));
  CHECK(hit.outcome == Outcome::hit);
  CHECK(hit.key == key);
  scratch.write("k.cu", "extern \"C\" __global__ void k2() {}");
  const auto miss = opened->compile(spec(source));
  REQUIRE(miss);
  REQUIRE(miss->front().error);
  CHECK(miss->front().error->code() == ErrorCode::not_found);
  CHECK(miss->front().error->message().find("no/libnvrtc.so.13") != std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "sealed: the error says what changed, and has the line that a manifest lacks") {
  scratch.write("inc/tile.cuh", "#define TILE 16\n");
  ModuleSpec module = spec(scratch.write("k.cu",
                                         "#include <tile.cuh>\n"
                                         "extern \"C\" __global__ void k(int* x) { *x = TILE; }"));
  module.name = "tiled";
  module.include = {scratch / "inc"};
  module.flags = {"-lineinfo"};
  const auto opened = open();
  only(opened->compile(module));
  opened->seal();
  const auto refusal = [&] {
    const auto reports = opened->compile(module);
    REQUIRE(reports);
    REQUIRE(reports->front().error);
    CHECK(reports->front().error->code() == ErrorCode::sealed);
    return reports->front().error->message();
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };

  module.define["STEPS"] = "2";
  const std::string flag = refusal();
  CAPTURE(flag);
  CHECK(has(flag, "a compile of tiled for sm_100a was needed after seal(): not in the store"));
  CHECK(has(flag, "flag: was none, is --define-macro=STEPS=2"));
  CHECK(has(flag, "compared with the entry "));

  module.define.clear();
  scratch.write("inc/tile.cuh", "#define TILE 32\n");
  const std::string header = refusal();
  CAPTURE(header);
  CHECK(has(header, "header changed: " + (scratch / "inc/tile.cuh")));
  CHECK(has(header, "header changed: was " + (scratch / "inc/tile.cuh") + " "));

  const std::string line = header.substr(header.rfind('\n') + 1);
  const std::string text = name_of(module.sources.front());
  module.sources = {SourceFile{scratch.write("other/k.cu", "extern \"C\" __global__ void k() {}")}};
  module.name = "other";
  const std::string source = refusal();
  CAPTURE(source);
  CHECK(has(source, "source: was " + (scratch / "other/k.cu") + " "));
  CHECK_FALSE(has(source, "/cukiln/"));
  module.sources = {SourceFile{text}};
  module.name = "tiled";

  CAPTURE(line);
  const auto manifest = Manifest::parse(R"({"format":1,"modules":[)" + line + "]}", "/");
  if (!manifest) FAIL(manifest.error().message());
  const auto ready = open()->preload(*manifest, without_load());
  REQUIRE(ready);
  CHECK(ready->compiled == 1);
  CHECK(only(opened->compile(module)).outcome == Outcome::hit);
}

TEST_CASE_FIXTURE(LoaderFixture, "sealed: a source in memory is named as what no manifest has") {
  ModuleSpec module;
  module.sources = {SourceText{"made.cu", "extern \"C\" __global__ void made() {}"}};
  module.targets = {{100, 'a'}};
  std::string logged;
  LoaderOptions options = loader_options();
  options.log = [&](LogLevel, std::string_view message) { logged += message; };
  const auto opened = open(options);
  opened->seal(SealPolicy::warn);
  CHECK(only(opened->compile(module)).outcome == Outcome::compiled);
  CAPTURE(logged);
  CHECK(logged.find("after seal() delays the hot path: not in the store") != std::string::npos);
  CHECK(logged.find("once its texts, which are in memory here, are files") != std::string::npos);
  CHECK(logged.find(R"("sources":["made.cu"])") != std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture, "a memory-only store works and writes nothing") {
  StoreOptions memory = store_options();
  memory.memory_only = true;
  const std::string source = scratch.write("k.cu", "extern \"C\" __global__ void k() {}");
  const auto opened = open(memory);
  CHECK(only(opened->compile(spec(source))).outcome == Outcome::compiled);
  CHECK(only(opened->compile(spec(source))).outcome == Outcome::hit);
  CHECK_FALSE(std::filesystem::exists(scratch / "store"));
}

namespace {

/// NVRTC is busy with it for minutes.
constexpr const char* kSlow = R"(
template <int A, int B> struct Tree {
  enum { value = Tree<A - 1, B * 2>::value + Tree<A - 1, B * 2 + 1>::value }; };
template <int B> struct Tree<0, B> { enum { value = B }; };
extern "C" __global__ void slow(int* x) { *x = Tree<24, 0>::value; }
)";

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture, "a token cancels its own call, and no other") {
  const auto opened = open();
  PreloadOptions options;
  options.load = false;
  options.cancel.emplace();
  const CancelToken token = *options.cancel;
  auto pending = opened->preload_async(
      Manifest({spec(scratch.write("slow.cu", kSlow)), spec(scratch.write("k.cu", kSlow))}),
      options);
  CHECK(pending.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
  const std::string quick = scratch.write("quick.cu", "__global__ void quick() {}");
  CHECK(only(opened->compile(spec(quick))).outcome == Outcome::compiled);

  token.cancel();
  REQUIRE(pending.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  const auto ended = pending.get();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code() == ErrorCode::timeout);
  CHECK(ended.error().message().find("cancelled") != std::string::npos);

  // The token stays cancelled; calls without it do not know of it.
  const std::string other = scratch.write("other.cu", "__global__ void other() {}");
  const auto refused = opened->compile(spec(other), token);
  REQUIRE(refused);
  CHECK(refused->front().outcome == Outcome::failed);
  CHECK(only(opened->compile(spec(other))).outcome == Outcome::compiled);
  CHECK(only(opened->compile(spec(other), token)).outcome == Outcome::hit);
}

TEST_CASE_FIXTURE(LoaderFixture, "a module is unloaded, and may be loaded again under new ids") {
  FakeCuda fake;
  fake.set_capability(0, 90);
  const auto opened = open(with_driver(fake.path));
  ModuleSpec gone =
      spec(scratch.write("gone.cu", "extern \"C\" __global__ void gone() {}"), {{90, 'a'}});
  ModuleSpec kept =
      spec(scratch.write("kept.cu", "extern \"C\" __global__ void kept() {}"), {{90, 'a'}});
  const auto report = opened->preload(Manifest({gone, kept}));
  REQUIRE(report);
  REQUIRE(opened->kernels().at(0).name() == "gone");

  REQUIRE(opened->unload(report->modules[0].key));
  CHECK(fake.calls("cuLibraryUnload") == 1);
  CHECK(!opened->kernels().at(0));
  CHECK(!opened->kernels().find("gone"));
  CHECK(opened->kernels().at(1).name() == "kept");

  const auto again = opened->unload(report->modules[0].key);
  REQUIRE_FALSE(again);
  CHECK(again.error().code() == ErrorCode::not_found);
  CHECK(fake.calls("cuLibraryUnload") == 1);

  REQUIRE(opened->preload(Manifest({gone})));
  CHECK(opened->kernels().at(2).name() == "gone");
  CHECK(opened->kernels().find("gone").name() == "gone");
}
