// SPDX-License-Identifier: Apache-2.0
#include "core/compile/nvrtc_compiler.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <thread>

#include "core/base/hasher.hpp"
#include "support/compile_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using namespace std::chrono_literals;

namespace {

const std::string kKernel = "extern \"C\" __global__ void k(int*) {}\n";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The error of a source that cannot be compiled.
Error failure_of(TestModule& module, Compiler& compiler) {
  auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  return outcome.error();
}
Error failure_of(const std::string& source, NvrtcCompilerOptions options = fake_options()) {
  NvrtcCompiler compiler(std::move(options));
  TestModule module(source + kKernel);
  module.label = "my_kernel";
  return failure_of(module, compiler);
}

}  // namespace

TEST_CASE("fault 436: a compiler without a tool that links says which folder has it") {
  const auto linker = NvrtcCompiler(fake_options()).linker();
  REQUIRE_FALSE(linker);
  CHECK(linker.error().code() == ErrorCode::not_found);
  CHECK(contains(linker.error().message(), "without src/addons/link"));
}

TEST_CASE("a compile returns the image, the kernels and their resources") {
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: warn k.cu(1): warning: odd\n" + kKernel);
  const CompileResult result = must(module.run(compiler));
  CHECK(check_image(result.cubin.image, module.request.target));
  REQUIRE(result.cubin.kernels.size() == 1);
  CHECK(result.cubin.kernels[0].name == "k");
  CHECK(result.cubin.kernels[0].registers == 24);
  CHECK(result.cubin.kernels[0].shared_bytes == 512);
  CHECK(result.cubin.kernels[0].spill_bytes == 12);
  CHECK(result.cubin.log == "k.cu(1): warning: odd\n");
  CHECK(result.observed);
  CHECK_FALSE(result.uses_time);
  CHECK(result.dependencies == DependencySet{});
}

TEST_CASE(
    "the dependency set has every accessed path, present, absent and folders, and nothing else") {
  const ScratchFolder include;
  include.write("used.h", "used");
  include.write("unused.h", "unused");
  include.write("folder/x.h", "");
  NvrtcCompiler compiler(fake_options());
  TestModule module(
      "#include \"unused.h\"\n// fake: include /cukiln/inc/0/used.h\n"
      "// fake: look /cukiln/inc/0/nothing.h\n// fake: look /cukiln/inc/0/folder\n"
      "// fake: look /cukiln/inc/0/no/folder/a.h\n// fake: look /cukiln/inc/0/no/folder/b.h\n"
      "// fake: look /cukiln/src/k.cu\n// fake: look __own_name\n// fake: look .\n" +
          kKernel,
      {include.path()});
  const CompileResult result = must(module.run(compiler));
  DependencySet expected;  // in the order of accesses
  expected.add_file("/cukiln/inc/0/used.h", hash_of("used"));
  expected.add_absent("/cukiln/inc/0/nothing.h");
  expected.add_folder("/cukiln/inc/0/folder");
  expected.add_absent("/cukiln/inc/0/no/folder/a.h");
  expected.add_absent("/cukiln/inc/0/no/folder/b.h");
  expected.add_absent("/cukiln/work/__own_name");
  CHECK(result.dependencies == expected);
}

// fault 43
TEST_CASE("the bytes served are the bytes hashed, even if the file changes meanwhile") {
  const ScratchFolder include;
  const std::string header = include.write("h.h", "old");
  const std::string count = include / "count";
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: include /cukiln/inc/0/h.h\n// fake: count " + count +
                        "\n// fake: wait " + (include / "edited") +
                        "\n// fake: include /cukiln/inc/0/h.h\n" + kKernel,
                    {include.path()});
  std::thread editor([&] {
    CHECK(becomes_true([&] { return std::filesystem::exists(count); }));
    include.write("h.h", "new bytes");
    include.write("edited", "");
  });
  const CompileResult first = must(module.run(compiler));
  editor.join();
  REQUIRE(first.dependencies.observations.size() == 1);
  CHECK(first.dependencies.observations[0].hash == hash_of("old"));
  // The image depends on what both reads gave.
  const CompileResult of_new = must(module.run(compiler));
  CHECK(of_new.cubin.image.view() != first.cubin.image.view());
  include.write("h.h", "old");
  const CompileResult of_old = must(module.run(compiler));
  CHECK(of_old.cubin.image.view() == first.cubin.image.view());
}

// fault 123
TEST_CASE("a folder that appears during a compile stays absent until its end") {
  const ScratchFolder include;
  include.write("later.h", "#include \"folder/x.h\"\n");
  const std::string count = include / "count";
  NvrtcCompiler compiler(fake_options());
  TestModule module(
      "// fake: look /cukiln/inc/0/folder/a.h\n// fake: look /cukiln/inc/0/folder/x.h\n"
      "// fake: count " +
          count + "\n// fake: wait " + (include / "edited") +
          "\n"
          "// fake: include /cukiln/inc/0/later.h\n// fake: look /cukiln/inc/0/folder/y.h\n" +
          kKernel,
      {include.path()});
  std::thread editor([&] {
    CHECK(becomes_true([&] { return std::filesystem::exists(count); }));
    include.write("folder/x.h", "");
    include.write("folder/y.h", "");
    include.write("edited", "");
  });
  const CompileResult result = must(module.run(compiler));
  editor.join();
  DependencySet expected;
  expected.add_absent("/cukiln/inc/0/folder/a.h");
  expected.add_absent("/cukiln/inc/0/folder/x.h");
  expected.add_file("/cukiln/inc/0/later.h", hash_of("#include \"folder/x.h\"\n"));
  expected.add_absent("/cukiln/inc/0/folder/y.h");
  CHECK(result.dependencies == expected);
  FileServer now(module.roots, nullptr);
  CHECK(now.check(result.dependencies).what == FileServer::Mismatch::What::appeared);
}

// fault 45
TEST_CASE("a date macro is noticed in sources and in accessed headers") {
  const ScratchFolder include;
  include.write("date.h", "const char* date = __DATE__;");
  NvrtcCompiler compiler(fake_options());
  TestModule in_source("const char* t = __TIME__;\n" + kKernel);
  CHECK(must(in_source.run(compiler)).uses_time);
  TestModule in_header("// fake: include /cukiln/inc/0/date.h\n" + kKernel, {include.path()});
  CHECK(must(in_header.run(compiler)).uses_time);
  TestModule unused("#include \"date.h\"\n" + kKernel, {include.path()});
  CHECK_FALSE(must(unused.run(compiler)).uses_time);
}

// fault 84
TEST_CASE("every compile sees the same time and pid") {
  for (int i = 0; i < 2; ++i) {
    NvrtcCompiler compiler(fake_options());
    TestModule module("// fake: clock\n// fake: sleep 20\n" + kKernel);
    const CompileResult result = must(module.run(compiler));
    CHECK(result.cubin.log == "clock 946684800 946684800 946684800 UTC 1\n");
    CHECK(result.compile_us >= 20'000);
  }
}

// fault 82
TEST_CASE("a compile whose arguments, source or header spell a date macro sees the real clock") {
  const ScratchFolder include;
  include.write("date.h", "const char* date = __DA\\\nTE__;");
  NvrtcCompiler compiler(fake_options());
  TestModule modules[] = {
      TestModule("// fake: clock\n" + kKernel, {}, {"--define-macro=NOW=__TIME__"}),
      TestModule("// fake: clock\n// __TIMESTAMP__\n" + kKernel),
      TestModule("// fake: clock\n// fake: include /cukiln/inc/0/date.h\n" + kKernel,
                 {include.path()}),
  };
  for (TestModule& module : modules) {
    const std::time_t before = std::time(nullptr);
    const CompileResult result = must(module.run(compiler));
    CHECK(result.uses_time);
    const std::string& log = result.cubin.log;
    REQUIRE(log.compare(0, 6, "clock ") == 0);
    CHECK(std::stol(log.substr(6)) >= before);
    CHECK_FALSE(contains(log, "946684800"));
    CHECK_FALSE(contains(log, " 1\n"));
    TestModule next("// fake: clock\n" + kKernel);
    CHECK(must(next.run(compiler)).cubin.log == "clock 946684800 946684800 946684800 UTC 1\n");
  }
}

// fault 82
TEST_CASE("a date macro in a name expression is noticed") {
  NvrtcCompiler compiler(fake_options());
  TestModule module(kKernel);
  module.request.options.name_expressions = {"f<sizeof(__DATE__)>"};
  CHECK(must(module.run(compiler)).uses_time);
}

TEST_CASE("an unobserved NVRTC sees the real clock, and its results are not stored") {
  NvrtcCompiler compiler(fake_options(kUnobservedNvrtc));
  TestModule module("// fake: clock\n" + kKernel);
  const CompileResult result = must(module.run(compiler));
  CHECK_FALSE(result.observed);
  CHECK_FALSE(contains(result.cubin.log, "946684800"));
}

// fault 49
TEST_CASE("a compile that hangs is stopped at its timeout, and the error names its kernel") {
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: spin\n" + kKernel);
  module.label = "my_kernel";
  module.timeout = 1s;
  const Error error = failure_of(module, compiler);
  CHECK(error.code() == ErrorCode::timeout);
  CHECK(contains(error.message(), "my_kernel"));
  CHECK(contains(error.message(), "1000 ms"));
}

TEST_CASE("a cancelled compile ends immediately, whatever NVRTC is doing") {
  NvrtcCompiler compiler(fake_options());
  const ScratchFolder folder;
  TestModule module("// fake: count " + (folder / "count") + "\n// fake: spin\n" + kKernel);
  std::atomic<bool> cancelled = false;
  std::thread canceller([&] {
    CHECK(becomes_true([&] { return std::filesystem::exists(folder / "count"); }));
    cancelled = true;
  });
  const auto outcome = module.run(compiler, {}, cancelled);
  canceller.join();
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::timeout);
  CHECK(contains(outcome.error().message(), "cancelled"));
}

// fault 49
TEST_CASE("a crash of NVRTC is reported with signal and kernel, and the next compile works") {
  NvrtcCompiler compiler(fake_options());
  const std::pair<const char*, const char*> crashes[] = {
      {"segv", "SIGSEGV"}, {"abort", "SIGABRT"}, {"overflow", "stack"}};
  for (const auto& [order, expected] : crashes) {
    TestModule module(std::string("// fake: ") + order + "\n" + kKernel);
    module.label = "my_kernel";
    const Error error = failure_of(module, compiler);
    CAPTURE(error.message());
    CHECK(error.code() == ErrorCode::internal);
    CHECK(contains(error.message(), "my_kernel"));
    CHECK(contains(error.message(), expected));
    CHECK_FALSE(contains(error.message(), std::string(1, '\0')));  // of an empty stderr
    TestModule next(kKernel);
    must(next.run(compiler));
  }
}

TEST_CASE("the error of a crash has what NVRTC wrote to stderr") {
  CHECK(contains(failure_of("// fake: abort\n").message(), "fake NVRTC aborts"));
}

// fault 49
TEST_CASE("a compile that exceeds its memory limit is distinguished from a crash") {
  NvrtcCompilerOptions options = fake_options();
  options.worker = kPlainWorker;
  options.memory_bytes = 1ull << 30;
  const Error error = failure_of("// fake: oom\n", options);
  CHECK(error.code() == ErrorCode::timeout);
  CHECK(contains(error.message(), "1024 MiB"));
  CHECK(contains(error.message(), "my_kernel"));
}

// fault 176
TEST_CASE("a worker's address space follows the memory of all workers, if that is less") {
  NvrtcCompilerOptions options = fake_options();
  options.worker = kPlainWorker;
  options.budget = std::make_shared<CompileBudget>(CompileBudget::Limits{1, 128 << 20});
  const Error error = failure_of("// fake: oom\n", options);
  CHECK(error.code() == ErrorCode::timeout);
  CHECK(contains(error.message(), "384 MiB"));
  CHECK(contains(error.message(), "raise CUKILN_MEMORY"));
}

// fault 414
TEST_CASE("only what the front end refuses fails with all that the compile looked at") {
  const std::string refused =
      "error k.cu(1): error: no\n// fake: error 1 error detected in the compilation of \"k.cu\".";
  const ScratchFolder folder;
  const auto failure_of_program = [&](const std::string& order, const std::string& text = kKernel,
                                      const char* library = kFakeNvrtc) {
    NvrtcCompilerOptions options = fake_options(library);
    options.worker = kPlainWorker;
    options.memory_bytes = 1ull << 30;
    NvrtcCompiler compiler(options);
    TestModule module("// fake: look /cukiln/inc/0/absent.h\n// fake: " + order + "\n" + text,
                      {folder.path()});
    module.request.program = {OutputKind::cubin, kWorkRoot};
    module.timeout = order == "spin" ? 1s : module.timeout;
    CHECK_FALSE(module.run(compiler));
    return module.failure;
  };
  const NvrtcFailure remembered = failure_of_program(refused);
  CHECK(remembered.code == 6);
  CHECK(contains(remembered.log, "error: no\n1 error detected"));
  REQUIRE(remembered.dependencies);
  const Observation* const absent = remembered.dependencies->find("/cukiln/inc/0/absent.h");
  REQUIRE(absent != nullptr);
  CHECK(absent->kind == Observation::Kind::absent);

  for (const char* order : {"oom", "segv", "spin", "code 7", "code 1", "error ptxas fatal: no"}) {
    CAPTURE(order);
    CHECK_FALSE(failure_of_program(order).dependencies);
  }
  CHECK_FALSE(failure_of_program(refused, "// __DATE__\n" + kKernel).dependencies);
  CHECK_FALSE(failure_of_program(refused, kKernel, kUnobservedNvrtc).dependencies);
}

TEST_CASE("the memory of each compile is measured by itself, in a worker that is used again") {
  NvrtcCompilerOptions options = fake_options();
  options.worker = kPlainWorker;
  NvrtcCompiler compiler(options);
  constexpr std::uint64_t kMiB = 1 << 20;
  TestModule small(kKernel);
  const std::uint64_t little = must(small.run(compiler)).peak_bytes;
  CHECK(little > 0);
  CHECK(little < 100 * kMiB);
  TestModule large("// fake: touch 200\n" + kKernel);
  const std::uint64_t much = must(large.run(compiler)).peak_bytes;
  CHECK(much >= little + 190 * kMiB);
  CHECK(much <= little + 220 * kMiB);
  TestModule again(kKernel + "// again\n");
  CHECK(must(again.run(compiler)).peak_bytes < 100 * kMiB);
}

TEST_CASE(
    "a compile that would not fit into memory waits, and one that is expected to be small fits") {
  const ScratchFolder folder;
  NvrtcCompilerOptions options = fake_options();
  options.budget = std::make_shared<CompileBudget>(CompileBudget::Limits{8, 768ull << 20});
  NvrtcCompiler compiler(options);
  const std::string begun = folder / "begun";
  const auto source = [&](const char* name) {
    return "// fake: count " + begun + "\n// fake: wait " + (folder / "go") + "\n// " + name +
           "\n" + kKernel;
  };
  TestModule first(source("first"));
  TestModule second(source("second"));
  TestModule third(source("third"));
  third.expected_bytes = 64 << 20;
  std::thread one([&] { must(first.run(compiler)); });
  CHECK(becomes_true([&] { return read_all(begun).size() == 1; }));
  std::thread three([&] { must(third.run(compiler)); });
  CHECK(becomes_true([&] { return read_all(begun).size() == 2; }));
  std::thread two([&] { must(second.run(compiler)); });
  CHECK(becomes_true([&] { return options.budget->waiting() == 1; }));
  CHECK_FALSE(becomes_true([&] { return read_all(begun).size() == 3; }, 100ms));
  folder.write("go", "");
  one.join();
  two.join();
  three.join();
  CHECK(read_all(begun).size() == 3);
}

// fault 50
TEST_CASE("a compile that succeeds without a usable cubin is an error") {
  CHECK(failure_of("// fake: empty\n").code() == ErrorCode::corrupt);
  CHECK(failure_of("// fake: garbage\n").code() == ErrorCode::corrupt);
  const Error other = failure_of("// fake: sm 90\n");
  CHECK(other.code() == ErrorCode::incompatible);
  CHECK(contains(other.message(), "my_kernel"));
}

TEST_CASE("NVRTC's log has the user's own paths") {
  const ScratchFolder include;
  const std::string header = include.write("bad.cuh", "bad");
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: error /cukiln/inc/0/bad.cuh(3): error: oops\n" + kKernel,
                    {include.path()});
  const Error error = failure_of(module, compiler);
  CHECK(error.code() == ErrorCode::compile_failed);
  CHECK(contains(error.log(), header + "(3): error: oops"));
}

// fault 335
TEST_CASE("a message has the first error where warnings come before it in the log") {
  const ScratchFolder include;
  const std::string header = include.write("bad.cuh", "bad");
  NvrtcCompiler compiler(fake_options());
  const std::string error = "// fake: error /cukiln/inc/0/bad.cuh(3): error: oops\n";
  TestModule below("// fake: warn k.cu(1): warning: odd\n" + error + kKernel, {include.path()});
  const std::string message = failure_of(below, compiler).message();
  CAPTURE(message);
  CHECK(contains(message.substr(0, message.find('\n')), ": " + header + "(3): error: oops"));
  TestModule first(error + kKernel, {include.path()});
  CHECK_FALSE(contains(failure_of(first, compiler).message(), "oops"));
}

TEST_CASE("a missing header is reported with the paths searched") {
  const ScratchFolder include;
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: include /cukiln/inc/0/gone.cuh\n" + kKernel, {include.path()});
  const Error error = failure_of(module, compiler);
  CHECK(contains(error.message(), "gone.cuh"));
  CHECK(contains(error.message(), include / "gone.cuh"));
}

// fault 48
TEST_CASE("builtins of another version are an error that names both") {
  const Error error = failure_of("// fake: code 7\n");
  CHECK(error.code() == ErrorCode::incompatible);
  CHECK(contains(error.message(), "13.0.99"));
}

// fault 44
TEST_CASE("a header that is a FIFO fails fast and is named") {
  const ScratchFolder include;
  REQUIRE(::mkfifo((include / "pipe.h").c_str(), 0600) == 0);
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: include /cukiln/inc/0/pipe.h\n" + kKernel, {include.path()});
  const Error error = failure_of(module, compiler);
  CHECK(error.code() == ErrorCode::compile_failed);
  CHECK(contains(error.message(), include / "pipe.h"));
}

TEST_CASE("a missing or unsuitable worker or library is named in the error") {
  NvrtcCompilerOptions options = fake_options();
  options.worker = "/nowhere/worker";
  CHECK(contains(NvrtcCompiler(options).toolchain().error().message(), "/nowhere/worker"));
  options = fake_options("/nowhere/libnvrtc.so");
  CHECK(contains(NvrtcCompiler(options).toolchain().error().message(), "/nowhere/libnvrtc.so"));
  options = fake_options("/etc/passwd");
  CHECK(NvrtcCompiler(options).toolchain().error().code() == ErrorCode::not_found);
}

// fault 89
TEST_CASE("parent and forked child compile concurrently, each with its own workers") {
  NvrtcCompiler compiler(fake_options());
  TestModule first(kKernel);
  must(first.run(compiler));  // leaves an idle worker in the pool that both could take
  const auto compile_named = [&](const std::string& name) {
    for (int i = 0; i < 5; ++i) {
      TestModule module("// fake: sleep 20\nextern \"C\" __global__ void " + name + "(int*) {}\n");
      const auto outcome = module.run(compiler);
      if (!outcome || outcome->result.cubin.kernels.front().name != name) {
        return false;
      }
    }
    return true;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(compile_named("in_child") ? 0 : 1);
  }
  CHECK(compile_named("in_parent"));
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("several threads compile concurrently") {
  NvrtcCompiler compiler(fake_options());
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 3; ++k) {
        TestModule module("// " + std::to_string(i) + "\n" + kKernel);
        good += module.run(compiler) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == 12);
}
