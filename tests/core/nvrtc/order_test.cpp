// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "support/loader_fixture.hpp"
#include "support/plain_nvrtc.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

/// This process's folder, for as long as it lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingFolder() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

struct OrderFixture : LoaderFixture {
  const Opened opened = open();

  /// Each line of flags gives its X, as it does in NVRTC itself.
  void check(const std::string& source,
             const std::vector<std::pair<Strings, std::uint32_t>>& lines) const {
    for (const auto& [flags, expected] : lines) {
      CAPTURE(flags.back());
      ModuleSpec module = spec(source);
      module.flags = flags;
      CHECK(x_of(only(opened->compile(module))) == expected);
      CHECK(plain_x(source, flags) == expected);
      CHECK(only(opened->compile(module)).outcome == Outcome::hit);
    }
  }
};

}  // namespace

// fault 102
TEST_CASE_FIXTURE(OrderFixture, "-D, -U and -I act in the order given, as in NVRTC itself") {
  check(scratch.write("k.cu", kKernelOfX),
        {{{"-UX", "-DX=11"}, 11},
         {{"-DX=11", "-UX"}, 77},
         {{"-DX=11", "-UX", "-DX=12"}, 12},
         {{"-DX=11", "-DX=12"}, 12},
         {{"-D", "X=11", "--undefine-macro=X", "--define-macro", "X=13"}, 13}});
  scratch.write("a/x.h", "#define X 11\n");
  scratch.write("b/x.h", "#define X 12\n");
  const std::string a = scratch / "a";
  const std::string b = scratch / "b";
  const std::string source = scratch.write("i.cu", std::string("#include <x.h>\n") + kKernelOfX);
  check(source, {{{"-I" + a, "-I", b}, 11},
                 {{"--include-path=" + b, "-I" + a}, 12},
                 {{"-DY", "-I" + b, "-UX", "-I" + a}, 12}});
  ModuleSpec module = spec(source);  // as with nvcc
  module.flags = {"-isystem", a, "-I", b};
  CHECK(x_of(only(opened->compile(module))) == 12);
}

// fault 102
TEST_CASE_FIXTURE(LoaderFixture,
                  "the compiler's line is include, define, flags, and flags' order") {
  const std::string source = scratch.write("k.cu", std::string("#include <x.h>\n") + kKernelOfX);
  scratch.write("a/x.h", "#define A\n");
  scratch.write("b/x.h", "#undef X\n#define X 12\n");
  const auto opened = open();

  ModuleSpec undefined = spec(source);
  undefined.include = {scratch / "a"};
  undefined.define = {{"X", "11"}};
  undefined.flags = {"-UX", "-I" + (scratch / "b")};
  CHECK(x_of(only(opened->compile(undefined))) == 77);

  ModuleSpec mixed = spec(source);
  mixed.flags = {"-UX", "-I" + (scratch / "b"), "-DX=11", "-I" + (scratch / "a")};
  CHECK(x_of(only(opened->compile(mixed))) == 12);

  // However a line is spread over the fields, it is the same key.
  ModuleSpec fields = spec(source);
  fields.include = {scratch / "a"};
  fields.define = {{"X", "15"}};
  fields.flags = {"-lineinfo"};
  ModuleSpec flags = spec(source);
  flags.flags = {"-I", scratch / "a", "-D", "X=15", "-lineinfo"};
  const ModuleReport report = only(opened->compile(fields));
  CHECK(x_of(report) == 15);
  CHECK(only(opened->compile(flags)).key == report.key);
}

// fault 103
TEST_CASE_FIXTURE(OrderFixture,
                  "a relative -include: the working folder, then -I, as in NVRTC itself") {
  const std::string source = scratch.write("src/k.cu", kKernelOfX);
  scratch.write("work/x.h", "#define X 11\n");
  scratch.write("work/again.h", "#undef X\n#define X 12\n");
  scratch.write("work/sub/y.h", "#include \"x.h\"\n");
  scratch.write("work/sub/x.h", "#define X 13\n");
  scratch.write("beside/x.h", "#define X 14\n");
  scratch.write("inc/x.h", "#define X 15\n");
  scratch.write("inc/only.h", "#define X 16\n");
  scratch.write("src/x.h", "#define X 17\n");
  const WorkingFolder here(scratch / "work");
  const std::string inc = "-I" + (scratch / "inc");
  check(source, {{{"-include=x.h"}, 11},
                 {{"-include", "./x.h", inc}, 11},
                 {{inc, "--pre-include=x.h"}, 11},
                 {{"-include", "x.h", "-include", "again.h"}, 12},
                 {{"-include", "sub/y.h"}, 13},
                 {{"-include", "../beside/x.h"}, 14},
                 {{"-include", scratch / "inc/x.h"}, 15},
                 {{"-include", "only.h", inc}, 16}});
  ModuleSpec nowhere = spec(source);  // beside the source is no place where it is looked for
  std::filesystem::remove(scratch / "work/x.h");
  nowhere.flags = {"-include", "x.h"};
  const auto reports = opened->compile(nowhere);
  REQUIRE(reports);
  REQUIRE(reports->front().error);
  const std::string message = reports->front().error->message();
  CHECK(message.find(scratch / "work/x.h") != std::string::npos);
  CHECK(message.find(" /x.h") == std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture, "the working folder is a field, by default the one at the call") {
  const std::string source = scratch.write("k.cu", kKernelOfX);
  scratch.write("one/x.h", "#define X 11\n");
  scratch.write("two/x.h", "#define X 12\n");
  scratch.write("two/inc/y.h", "#define Y\n");
  const auto opened = open();
  ModuleSpec module = spec(source);
  module.flags = {"-include", "x.h"};
  {
    const WorkingFolder here(scratch / "one");
    CHECK(x_of(only(opened->compile(module))) == 11);
    module.working_folder = "../two";
    CHECK(x_of(only(opened->compile(module))) == 12);
  }
  module.working_folder = scratch / "two";
  module.flags = {"-include", "x.h", "-include", "y.h", "-Iinc"};
  CHECK(x_of(only(opened->compile(module))) == 12);
}

// fault 103
TEST_CASE_FIXTURE(LoaderFixture, "every path searched for a relative -include is a dependency") {
  const std::string source = scratch.write("k.cu", kKernelOfX);
  scratch.write("inc/x.h", "#define X 11\n");
  std::filesystem::create_directory(scratch / "work");
  const auto opened = open();
  ModuleSpec module = spec(source);
  module.flags = {"-include", "x.h", "-I", scratch / "inc"};
  module.working_folder = scratch / "work";
  CHECK(x_of(only(opened->compile(module))) == 11);

  const std::string nearer = scratch.write("work/x.h", "#define X 12\n");
  const ModuleReport appeared = only(opened->compile(module));
  CHECK(x_of(appeared) == 12);
  CHECK(appeared.reason == "header appeared: " + nearer);

  scratch.write("work/x.h", "#define X 13\n");
  const ModuleReport changed = only(opened->compile(module));
  CHECK(x_of(changed) == 13);
  CHECK(changed.reason == "header changed: " + nearer);

  std::filesystem::remove(nearer);
  const ModuleReport gone = only(opened->compile(module));
  CHECK(x_of(gone) == 11);
  CHECK(gone.outcome == Outcome::hit);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "a relative -include gives one key and one cubin in every folder") {
  const auto make = [&](const std::string& folder) {
    scratch.write(folder + "/pre.h", "__device__ inline const char* file() { return __FILE__; }\n");
    ModuleSpec module = spec(scratch.write(
        folder + "/k.cu", "extern \"C\" __global__ void k(const char** p) { *p = file(); }\n"));
    module.flags = {"-include", "pre.h", "-G"};
    module.working_folder = scratch / folder;
    return module;
  };
  const auto opened = open();
  const ModuleReport one = only(opened->compile(make("one")));
  const ModuleReport two = only(opened->compile(make("deep/down/two")));
  CHECK(one.outcome == Outcome::compiled);
  CHECK(two.outcome == Outcome::hit);
  CHECK(two.key == one.key);
  CHECK(opened->cubin(one.key)->find(scratch.path()) == std::string::npos);
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "headers in memory come before those on disk, for each of several sources") {
  const auto opened = open();
  const std::string source =
      scratch.write("k.cu", std::string("#include \"sub/x.h\"\n#include \"y.h\"\n") + kKernelOfX);
  scratch.write("sub/x.h", "#define X 11\n");  // memory takes precedence over it
  ModuleSpec module = spec(source);
  module.headers = {SourceText{"sub/x.h", "#define X Y\n"}, SourceLiteral{"y.h", "#define Y 12\n"}};
  CHECK(x_of(only(opened->compile(module))) == 12);

  module.sources = {SourceFile{scratch.write("first.cu", "#include \"sub/x.h\"\n")},
                    SourceFile{source}};
  CHECK(x_of(only(opened->compile(module))) == 12);

  module.headers.pop_back();
  const auto failed = opened->compile(module);
  REQUIRE(failed);
  CHECK(failed->front().error->log().find("y.h") != std::string::npos);
}

// fault 103
TEST_CASE("every NVRTC looks for a relative -include in the virtual working folder, never in /") {
  std::vector<std::string> roots = further_roots();
  roots.emplace_back();  // the machine's own
  for (const std::string& root : roots) {
    CAPTURE(root);
    NvrtcCompiler compiler(real_options(root));
    const ScratchFolder folder;
    folder.write("work/x.h", "#define X 13\n#include \"y.h\"\n");
    folder.write("work/y.h", "");
    folder.write("inc/z.h", "template <class T> __global__ void t() {}\n");
    TestModule module(kKernelOfX, {folder / "inc"},
                      {"--pre-include=x.h", "--pre-include=z.h", "-G"});
    module.arch(90, 'a');
    module.roots.push_back({kWorkRoot, {folder / "work"}});
    module.request.options.name_expressions = {"k", "t<int>"};
    const CompileResult result = must(module.run(compiler));
    const Strings present = result.dependencies.paths(Observation::Kind::file);
    CHECK(present == Strings{"/cukiln/work/x.h", "/cukiln/work/y.h", "/cukiln/inc/0/z.h"});
    CHECK(result.dependencies.paths(Observation::Kind::absent) == Strings{"/cukiln/work/z.h"});
    CHECK(result.dependencies.portable());
  }
}
