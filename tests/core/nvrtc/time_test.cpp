// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <ctime>

#include "core/compile/local_file_provider.hpp"
#include "core/loader/module_request.hpp"
#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* kFixedTime = "Jan  1 2000 00:00:00";
constexpr const char* kPasted =
    "#define PASTE(a, b) a##b\n"
    "__device__ const char* when = PASTE(__DA, TE__) \" \" PASTE(__TI, ME__);\n"
    "extern \"C\" __global__ void k(const char** out) { *out = when; }\n";
constexpr const char* kOnlyInstances =
    "namespace {\n"
    "__device__ int count;\n"
    "template <class T> __global__ void set(T* p) { *p = count++; }\n"
    "template __global__ void set<int>(int*);\n"
    "}\n";

bool contains(ByteView text, const std::string& part) { return text.find(part) != ByteView::npos; }

/// Today as NVRTC writes it.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%b %e %Y", &local);
  return text;
}

/// Every NVRTC that the tests have.
std::vector<NvrtcCompilerOptions> every_nvrtc() {
  std::vector<NvrtcCompilerOptions> all{real_options()};
  for (const std::string& root : further_roots()) {
    all.push_back(real_options(root));
  }
  return all;
}

CompileResult compiled_by(const NvrtcCompilerOptions& options, TestModule& module) {
  module.arch(90, 'a');
  NvrtcCompiler fresh(options);
  return must(module.run(fresh));
}

}  // namespace

// fault 83
TEST_CASE("a macro of the date made by token pasting gives one instant, and is stored") {
  TestModule module(kPasted);
  for (const NvrtcCompilerOptions& options : every_nvrtc()) {
    const CompileResult first = compiled_by(options, module);
    const CompileResult second = compiled_by(options, module);
    CHECK_FALSE(first.uses_time);
    CHECK(contains(first.cubin.image.view(), kFixedTime));
    CHECK(first.cubin.image.view() == second.cubin.image.view());
  }
}

// fault 84
TEST_CASE("two workers give a source of explicit instances only the same names and bytes") {
  for (const NvrtcCompilerOptions& options : every_nvrtc()) {
    TestModule module(kOnlyInstances);
    const CompileResult first = compiled_by(options, module);
    const CompileResult second = compiled_by(options, module);
    CHECK(first.cubin.image.view() == second.cubin.image.view());
  }
}

// fault 82
TEST_CASE("a date macro sees the real clock, wherever and however it is spelt") {
  const std::string kernel = "extern \"C\" __global__ void k(const char** out) { *out = when; }\n";
  const std::string by_macro = "__device__ const char* when = WHEN;\n" + kernel;
  const ScratchFolder include;
  include.write("spliced.cuh", "__device__ const char* when = __DA\\\nTE__;\n");
  include.write("deep.cuh", "#include \"spliced.cuh\"\n");
  for (const NvrtcCompilerOptions& options : every_nvrtc()) {
    TestModule modules[] = {
        TestModule("__device__ const char* when = __DATE__;\n" + kernel),
        TestModule("__device__ const char* when = __DA\\\nT\\\r\nE__;\n" + kernel),
        TestModule(by_macro, {}, {"--define-macro=WHEN=__DATE__"}),
        TestModule("#include <deep.cuh>\n" + kernel, {include.path()}),
        TestModule("#define NAME <deep.cuh>\n#include NAME\n" + kernel, {include.path()}),
        TestModule("__device__ const char* when = __DA?\?/\nTE__;\n" + kernel),
    };
    modules[5].request.options.arguments[1] = "--std=c++14";
    for (TestModule& module : modules) {
      CAPTURE(module.request.sources[0].text.view());
      const std::string before = today();
      const CompileResult result = compiled_by(options, module);
      CHECK(result.uses_time);
      CHECK((contains(result.cubin.image.view(), before) ||
             contains(result.cubin.image.view(), today())));
    }
  }
}

TEST_CASE("NVRTC has no __TIMESTAMP__: a file's age reaches no cubin") {
  for (const NvrtcCompilerOptions& options : every_nvrtc()) {
    TestModule module("__device__ const char* when = __TIMESTAMP__;\n");
    module.arch(90, 'a');
    NvrtcCompiler compiler(options);
    const auto outcome = module.run(compiler);
    REQUIRE_FALSE(outcome);
    CHECK(contains(outcome.error().log(), "\"__TIMESTAMP__\" is undefined"));
  }
}

TEST_CASE("fixed clocks block no compile, with threads or with times in the log") {
  const std::string source =
      "template <class T, int N> __device__ T power(T x) {\n"
      "  if constexpr (N == 0) return 1; else return power<T, N - 1>(x) * (x + N); }\n"
      "__global__ void a(float* p) { *p = power<float, 40>(*p); }\n"
      "__global__ void b(float* p) { *p = power<float, 41>(*p); }\n"
      "__global__ void c(double* p) { *p = power<double, 42>(*p); }\n";
  for (const NvrtcCompilerOptions& options : every_nvrtc()) {
    for (const char* argument :
         {"--split-compile=4", "--time=-", "--device-debug", "--Ofast-compile=max"}) {
      CAPTURE(argument);
      TestModule module(source, {}, {argument});
      module.timeout = 60s;
      const CompileResult result = compiled_by(options, module);
      CHECK(result.cubin.kernels.size() == 3);
      CHECK(result.compile_us > 1000);
    }
  }
}

// fault 82
TEST_CASE_FIXTURE(LoaderFixture, "a flag that spells __TIME__ is compiled each time and reported") {
  const std::string source =
      scratch.write("k.cu", "extern \"C\" __global__ void k(const char** out) { *out = WHEN; }\n");
  ModuleSpec module = spec(source);
  module.flags = {"-DWHEN=__TIME__"};
  const auto opened = open();
  for (int i = 0; i < 2; ++i) {
    const auto report = only(opened->compile(module));
    CHECK(report.outcome == Outcome::compiled);
    CHECK(report.not_stored->message() == "uses __TIME__, __DATE__ or __TIMESTAMP__");
  }
}

// fault 104
TEST_CASE_FIXTURE(LoaderFixture, "explain says why a module is never stored") {
  scratch.write("inc/deep.cuh", "#define TILE sizeof(__DA\\\nTE__)");
  scratch.write("inc/tile.cuh", "#include \"deep.cuh\"\n");
  scratch.write("inc/plain.cuh", "#define TILE 3\n");
  const char* kernel = "\nextern \"C\" __global__ void k(float* x) { *x = TILE; }\n";
  const std::string plain = scratch.write("plain.cu", std::string("#include <plain.cuh>") + kernel);
  const std::string dated = scratch.write("dated.cu", std::string("#include <tile.cuh>") + kernel);
  const auto opened = open();
  ModuleSpec stored = spec(plain);
  stored.include = {scratch / "inc"};
  only(opened->compile(stored));
  CHECK(opened->explain(stored, {100, 'a'})->hit);

  const auto why = [&](const ModuleSpec& module) {
    const auto explanation = opened->explain(module, {100, 'a'});
    REQUIRE(explanation);
    CHECK_FALSE(explanation->nearest);
    REQUIRE(explanation->differences.size() == 1);
    CHECK(explanation->differences[0].field == "never stored");
    return explanation->differences[0].now;
  };
  ModuleSpec header = spec(dated);
  header.include = {scratch / "inc"};
  CHECK(why(header) == "uses __DATE__ (" + (scratch / "inc/deep.cuh") + ")");
  ModuleSpec flag = stored;
  flag.flags = {"-DTILE=__TIME__"};
  CHECK(why(flag) == "uses __TIME__ (--define-macro=TILE=__TIME__)");
  ModuleSpec first = stored;
  first.flags = {"-include", "tile.cuh"};
  CHECK(why(first) == "uses __DATE__ (" + (scratch / "inc/deep.cuh") + ")");
}

// fault 120
TEST_CASE_FIXTURE(LoaderFixture, "headers in include folders are sent ahead") {
  scratch.write("inc/a.cuh", "#include <b.cuh>\n");
  scratch.write("inc/b.cuh", "/*\n#include \"secret.cuh\"\n*/\n");
  scratch.write("inc/secret.cuh", "");
  ModuleSpec module = spec(scratch.write("k.cu", "#include <a.cuh>\n"));
  module.flags = {"-I", scratch / "inc"};
  const auto request = make_module_request(module, {100, 'a'}, {}, {});
  REQUIRE(request);
  const auto files = request->files(nullptr);
  LocalFileProvider provider(request->request, request->request.translation_unit(), *files);
  std::vector<std::string> came;
  for (const wire::Answer& answer : provider.answer("/cukiln/src/k.cu").answers) {
    came.push_back(answer.path);
  }
  CHECK(came ==
        std::vector<std::string>{"/cukiln/src/k.cu", "/cukiln/inc/0/a.cuh", "/cukiln/inc/0/b.cuh"});
}
