// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

#include <algorithm>
#include <mutex>

#include "core/base/file_lock.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr CUresult kInvalidImage = static_cast<CUresult>(200);
constexpr CUresult kNoBinaryForGpu = static_cast<CUresult>(209);
constexpr CUresult kPtxTooNew = static_cast<CUresult>(222);

struct Fixture : LoaderFixture {
  FakeCuda driver;

  LoaderOptions with_driver() const { return LoaderFixture::with_driver(driver.path); }
  ModuleSpec two_kernels() const {
    ModuleSpec module =
        spec(scratch.write("pair.cu",
                           "extern \"C\" __global__ void first(float* x, int n) {}\n"
                           "extern \"C\" __global__ void second() {}\n"),
             {});
    module.name = "pair";
    module.names = {"second", "first"};
    return module;
  }
};

}  // namespace

// fault 5
TEST_CASE_FIXTURE(Fixture,
                  "a preload whose modules cannot be stored gives one warning and a count") {
  std::mutex mutex;
  std::vector<std::string> warnings;
  const LogSink sink = [&](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::warn) {
      warnings.emplace_back(text);
    }
  };
  StoreOptions store = store_options();
  store.log = sink;
  LoaderOptions options = loader_options();
  options.log = sink;
  const auto opened = open(store, options);
  const auto stuck = FileLock::acquire(scratch / "store/v6/writer.lock", FileLock::Mode::exclusive,
                                       std::chrono::milliseconds(1000));
  REQUIRE(stuck);
  std::vector<ModuleSpec> modules;
  for (const char* name : {"a", "b", "c", "d"}) {
    modules.push_back(
        spec(scratch.write(std::string(name) + ".cu", std::string("extern \"C\" __global__ void ") +
                                                          name + "(float* x) {}\n")));
  }
  const auto report = opened->preload(Manifest(modules), without_load());
  if (!report) FAIL(report.error().message() << report.error().log());
  CHECK(report->compiled == 4);
  const auto count = [&](std::string_view part) {
    return std::count_if(warnings.begin(), warnings.end(), [&](const std::string& warning) {
      return warning.find(part) != std::string::npos;
    });
  };
  CHECK(count("is not stored: ") == 1);
  CHECK(count("4 of 4 modules are not stored: ") == 1);
}

TEST_CASE_FIXTURE(Fixture,
                  "preload loads on every device; ids follow the manifest; names are found") {
  driver.set_devices(2);
  const auto opened = open(with_driver());
  std::size_t calls = 0;
  const auto report = opened->preload(
      Manifest({two_kernels()}), {}, [&](std::size_t done, std::size_t total, const ModuleReport&) {
        ++calls;
        CHECK(done <= total);
      });
  if (!report) FAIL(report.error().message() << report.error().log());
  CHECK(calls == 1);
  CHECK(driver.calls("cuLibraryLoadData") == 1);
  CHECK(report->modules[0].target == Target{90, 'a'});  // the devices' own
  const KernelTable& table = opened->kernels();
  CHECK(table.at(0).name() == "second");
  CHECK(table.at(1).name() == "first");
  CHECK_FALSE(table.at(2));
  CHECK(table.find("first").native() == table.at(1).native());
  CHECK(table.find("pair/first"));
  CHECK(table.find("pair/first@sm_90a"));
  CHECK_FALSE(table.find("third"));
  REQUIRE(opened->preload(Manifest({two_kernels()})));  // loads nothing more
  CHECK(driver.calls("cuLibraryLoadData") == 1);
}

TEST_CASE_FIXTURE(Fixture, "the longest text is compiled first; ids follow the manifest") {
  LoaderOptions options = with_driver();
  options.jobs = 1;
  std::vector<ModuleSpec> modules;
  for (const auto& [name, length] :
       {std::pair("middle", 20), {"longest", 30}, {"with_header", 10}}) {
    modules.push_back(spec(scratch.write(std::string(name) + ".cu",
                                         "extern \"C\" __global__ void k_" + std::string(name) +
                                             "() {}\n" + std::string(length, '\n')),
                           {}));
    modules.back().name = name;
    modules.back().names = {"k_" + std::string(name)};
  }
  modules.back().headers = {SourceText{"large.cuh", std::string(1000, '\n')}};
  std::vector<std::string> order;
  const auto opened = open(options);
  REQUIRE(opened->preload(
      Manifest(modules), {},
      [&](std::size_t, std::size_t, const ModuleReport& report) { order.push_back(report.name); }));
  CHECK(order == std::vector<std::string>{"with_header", "longest", "middle"});
  CHECK(opened->kernels().at(0).name() == "k_middle");
  CHECK(opened->kernels().at(2).name() == "k_with_header");
}

TEST_CASE_FIXTURE(Fixture,
                  "a failed module keeps its ids, the others are ready, and the error names it") {
  const auto opened = open(with_driver());
  ModuleSpec broken = two_kernels();
  broken.name = "broken";
  broken.sources = {
      SourceFile{scratch.write("broken.cu", "extern \"C\" __global__ void first() { no }")}};
  const auto report = opened->preload(Manifest({broken, two_kernels()}));
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == ErrorCode::compile_failed);
  CHECK(report.error().message().find("broken") != std::string::npos);
  CHECK(report.error().log().find("broken.cu(1)") != std::string::npos);
  CHECK_FALSE(opened->kernels().at(0));
  CHECK(opened->kernels().at(2).name() == "second");
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 52, fault 53: an image the driver refuses is removed and rebuilt once, then loads") {
  for (const CUresult refusal : {kInvalidImage, kNoBinaryForGpu, kPtxTooNew}) {
    CAPTURE(static_cast<int>(refusal));
    REQUIRE(open(with_driver())->preload(Manifest({two_kernels()})));
    driver.reset();
    driver.fail("cuLibraryLoadData", refusal, 1);
    const auto opened = open(with_driver());
    const auto report = opened->preload(Manifest({two_kernels()}));
    REQUIRE(report);
    CHECK(driver.calls("cuLibraryLoadData") == 2);
    CHECK(opened->stats().compiles == 1);
    CHECK(opened->kernels().find("first"));
  }
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 52, fault 53: refused again after the rebuild, it is a clear error and no loop") {
  driver.fail("cuLibraryLoadData", kNoBinaryForGpu, -1);
  const auto opened = open(with_driver());
  const auto report = opened->preload(Manifest({two_kernels()}));
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == ErrorCode::incompatible);
  CHECK(report.error().message().find("pair") != std::string::npos);
  CHECK(driver.calls("cuLibraryLoadData") == 2);
}

TEST_CASE_FIXTURE(Fixture, "a target that no device runs is refused before the driver is asked") {
  ModuleSpec module = two_kernels();
  module.targets = {{100, 'a'}};
  const auto report = open(with_driver())->preload(Manifest({module}));
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == ErrorCode::incompatible);
  CHECK(report.error().message().find("sm_100a") != std::string::npos);
  CHECK(report.error().message().find("sm_90a") != std::string::npos);
  CHECK(driver.calls("cuLibraryLoadData") == 0);
}

TEST_CASE_FIXTURE(
    Fixture, "with several targets the one that runs is loaded, the others are compiled only") {
  ModuleSpec module = two_kernels();
  module.targets = {{100, 'a'}, {90, 'a'}};
  const auto opened = open(with_driver());
  const auto report = opened->preload(Manifest({module}));
  REQUIRE(report);
  CHECK(report->compiled == 2);
  CHECK(driver.calls("cuLibraryLoadData") == 1);
  CHECK(opened->kernels().find("first@sm_90a"));
  CHECK_FALSE(opened->kernels().find("first@sm_100a"));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 51: without a driver compiling works, and a load says what is missing") {
  LoaderOptions none = loader_options();
  none.cuda_library = scratch / "no/libcuda.so.1";
  const auto opened = open(none);
  CHECK(opened->preload(Manifest({two_kernels()}), without_load()));
  const auto report = opened->preload(Manifest({two_kernels()}));
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == ErrorCode::driver);
  CHECK(report.error().message().find("libcuda") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "sealed: a load is an error, or a counted warning; what is loaded stays") {
  const auto opened = open(with_driver());
  REQUIRE(opened->preload(Manifest({two_kernels()})));
  ModuleSpec late = two_kernels();
  late.name = "late";
  late.define = {{"LATE", "1"}};
  late.targets = {{90, 'a'}};
  REQUIRE(opened->preload(Manifest({late}), without_load()));  // in the store, not loaded
  opened->seal();
  REQUIRE(opened->preload(Manifest({two_kernels()})));
  const auto refused = opened->get(late, "first");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::sealed);
  const std::string& why = refused.error().message();
  CAPTURE(why);
  CHECK(why.find("a load of late for sm_90a") != std::string::npos);
  CHECK(why.find("no preload had loaded it") != std::string::npos);
  CHECK(why.find(R"({"name":"late","sources":[")" + (scratch / "pair.cu")) != std::string::npos);
  opened->seal(SealPolicy::warn);
  CHECK(opened->get(late, "first"));
  CHECK(opened->stats().sealed_violations == 1);
}

TEST_CASE_FIXTURE(Fixture, "get gives one kernel, names those there are, and follows an edit") {
  const auto opened = open(with_driver());
  const auto first = opened->get(two_kernels(), "first");
  REQUIRE(first);
  CHECK(first->name() == "first");
  CHECK(opened->get(two_kernels(), "first")->native() == first->native());
  const auto absent = opened->get(two_kernels(), "third");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code() == ErrorCode::not_found);
  CHECK(absent.error().message().find("second") != std::string::npos);
  ModuleSpec unnamed = two_kernels();
  unnamed.name.clear();
  CHECK(opened->get(unnamed, "third").error().message().find("module pair has no kernel") !=
        std::string::npos);
  const auto either = opened->get(unnamed);
  REQUIRE_FALSE(either);
  CHECK(either.error().code() == ErrorCode::invalid_argument);
  CHECK(either.error().message().find("pair has several kernels") != std::string::npos);
  ModuleSpec edited = two_kernels();
  scratch.write("pair.cu",
                "extern \"C\" __global__ void first(double* x) { *x = 1; }\n"
                "extern \"C\" __global__ void second() {}\n");
  const auto after = opened->get(edited, "first");
  REQUIRE(after);
  CHECK(after->native() != first->native());
  CHECK(opened->kernels().find("pair/first").native() == after->native());  // never a stale one
}

TEST_CASE_FIXTURE(Fixture,
                  "get_cuda_module takes nvcc's flags, several targets and a second call") {
  const std::string source =
      scratch.write("ext.cu", "extern \"C\" __global__ void ext(float* x) { *x = 1; }");
  const auto opened = open(with_driver());
  const std::vector<std::string> flags = {
      "-O3", "--use_fast_math", "-gencode=arch=compute_90a,code=sm_90a",
      "-gencode=arch=compute_100a,code=sm_100a", "--expt-relaxed-constexpr"};
  REQUIRE(opened->get_cuda_module("ext", {source}, flags));
  CHECK(opened->kernels().find("ext/ext"));
  REQUIRE(opened->get_cuda_module("ext", {source}, flags));
  CHECK(opened->stats().compiles == 2);
  const auto refused = opened->get_cuda_module("ext", {source}, {"--frobnicate"});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("--frobnicate") != std::string::npos);
}
