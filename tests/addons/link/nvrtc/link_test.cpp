// SPDX-License-Identifier: Apache-2.0
// Modules whose sources are compiled by themselves and linked: as relocatable machine code, as
// LTO-IR, with objects; what an edit compiles; and what is wrong with a link.
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/file.hpp"
#include "core/compile/toolchain_identity.hpp"
#include "core/key/variables.hpp"
#include "core/loader/addons.hpp"
#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr const char* kCaller = R"(
#include "shared.h"
extern __device__ int table[4];
__device__ int twice(int x);
template <class T> __global__ void scale(T* p) { p[threadIdx.x] = T(twice(table[FACTOR])); }
extern "C" __global__ void first(int* p) { p[threadIdx.x] = twice(p[threadIdx.x]); }
)";
constexpr const char* kCallee = R"(
#include "shared.h"
__device__ int table[4] = {1, 2, 3, 4};
__device__ int twice(int x) { return FACTOR * x + table[2]; }
extern "C" __global__ void second(int* p) {
  __shared__ int s[32];
  s[threadIdx.x] = p[0];
  __syncthreads();
  p[threadIdx.x] = twice(s[31 - threadIdx.x]);
}
)";

struct LinkFixture : LoaderFixture {
  LinkFixture() {
    scratch.write("inc/shared.h", "#pragma once\n#define FACTOR 2\n");
    scratch.write("a.cu", kCaller);
    scratch.write("b.cu", kCallee);
  }

  ModuleSpec linked(LinkMode mode, std::vector<std::string> names = {}) const {
    ModuleSpec module;
    module.name = "m";
    module.sources = {SourceFile{scratch / "a.cu"}, SourceFile{scratch / "b.cu"}};
    module.include = {scratch / "inc"};
    module.names = std::move(names);
    module.targets = {{90, 'a'}};
    module.link = mode;
    return module;
  }

  /// The number of compiles and links since the loader was opened.
  static std::uint64_t compiles(const Opened& opened) { return opened->stats().compiles; }

  std::size_t entries() const { return open()->stats().entries; }
};

const KernelInfo& named(const ModuleReport& report, const std::string& name) {
  const auto at = std::find_if(report.kernels.begin(), report.kernels.end(),
                               [&](const KernelInfo& kernel) { return kernel.name == name; });
  REQUIRE(at != report.kernels.end());
  return *at;
}

std::string error_of(const Result<std::vector<ModuleReport>>& reports) {
  REQUIRE(reports);
  REQUIRE(reports->size() == 1);
  REQUIRE(reports->front().error);
  return reports->front().error->message();
}

NvrtcCompilerOptions linking(NvrtcCompilerOptions options) {
  options.link = addons().link_tool;
  return options;
}

/// Compiles two sources that call each other, and links them, with `objects`.
Result<CompileOutcome> link_two(NvrtcCompiler& compiler, const Toolchain& linker,
                                const std::string& argument,
                                std::vector<VirtualSource> objects = {}) {
  LinkParts parts;
  for (const char* text :
       {"__device__ int f(int); extern \"C\" __global__ void k(int* p) { *p = f(*p); }\n",
        "__device__ int f(int x) { return x + 1; }\n"}) {
    TestModule part(text, {}, {argument});
    part.arch(90, 'a');
    CompileResult compiled = must(part.run(compiler));
    const std::string name = "/cukiln/src/" + std::to_string(parts.parts.size()) + ".cu";
    parts.parts.push_back({name, compiled.cubin.image});
    parts.symbols.insert(parts.symbols.end(), compiled.cubin.kernels.begin(),
                         compiled.cubin.kernels.end());
  }
  TestModule whole("");
  whole.arch(90, 'a');
  whole.request.toolchain = *compiler.toolchain();
  whole.request.link = LinkStep{{"-arch=sm_90a"}, std::move(objects), linker};
  if (argument == kLtoArgument) {
    whole.request.link->options.emplace_back("-lto");
  }
  whole.request.link->options.emplace_back("-verbose");
  FileServer files({}, nullptr);
  CompileJob job{{whole.request, "m"}, FileSource(files), {}};
  job.input.parts = &parts;
  return compiler.compile(job);
}

}  // namespace

TEST_CASE_FIXTURE(LinkFixture, "sources that call each other are linked, and hit as one entry") {
  for (const LinkMode mode : {LinkMode::rdc, LinkMode::lto}) {
    CAPTURE(static_cast<int>(mode));
    const ModuleSpec spec = linked(mode);
    const ModuleReport compiled = only(open()->compile(spec));
    CHECK(compiled.outcome == Outcome::compiled);
    CHECK(compiled.cubin_bytes > 1000);
    CHECK(!compiled.not_stored);
    REQUIRE(compiled.kernels.size() == 2);
    CHECK(named(compiled, "second").shared_bytes == 128);
    CHECK(named(compiled, "first").registers > 0);
    const auto again = open();
    const ModuleReport hit = only(again->compile(spec));
    CHECK(hit.outcome == Outcome::hit);
    CHECK(hit.key == compiled.key);
    CHECK(compiles(again) == 0);
    CHECK(again->stats().hits == 1);  // the parts are not looked up
    CHECK(hit.kernels.size() == 2);
  }
}

TEST_CASE_FIXTURE(LinkFixture, "an edit compiles the source that it changed, and links") {
  only(open()->compile(linked(LinkMode::rdc)));
  CHECK(entries() == 3);
  scratch.write("b.cu", std::string(kCallee) + "// edited\n");
  const auto edited = open();
  CHECK(only(edited->compile(linked(LinkMode::rdc))).outcome == Outcome::compiled);
  CHECK(compiles(edited) == 2);  // b.cu, and the link
  CHECK(entries() == 5);
  scratch.write("inc/shared.h", "#pragma once\n#define FACTOR 3\n");
  const auto later = open();
  const ModuleReport changed = only(later->compile(linked(LinkMode::rdc)));
  CHECK(changed.reason.find("header changed: ") != std::string::npos);
  CHECK(changed.reason.find("shared.h") != std::string::npos);
  CHECK(compiles(later) == 3);
}

TEST_CASE_FIXTURE(LinkFixture, "names are resolved by the sources that have them") {
  const std::vector<std::string> names = {"second", "scale<float>", "&table"};
  for (const LinkMode mode : {LinkMode::rdc, LinkMode::lto}) {
    CAPTURE(static_cast<int>(mode));
    const ModuleReport report = only(open()->compile(linked(mode, names)));
    REQUIRE(report.kernels.size() == 2);
    CHECK(named(report, "scale<float>").lowered == "_Z5scaleIfEvPT_");
    CHECK(named(report, "scale<float>").registers > 0);
    CHECK(named(report, "second").registers > 0);
    REQUIRE(report.variables.size() == 1);
    CHECK(report.variables[0].lowered == "table");
    CHECK(report.variables[0].size_bytes == 16);
  }
  const std::string error = error_of(open()->compile(linked(LinkMode::rdc, {"scale<missing>"})));
  CHECK(error.find("No kernel scale<missing>") != std::string::npos);
}

TEST_CASE_FIXTURE(LinkFixture, "objects are linked, and their bytes are part of the key") {
  ModuleSpec spec = linked(LinkMode::rdc);
  spec.sources = {SourceFile{scratch / "a.cu"}};
  // the callee as a relocatable cubin of another build
  ModuleSpec callee = linked(LinkMode::rdc);
  callee.sources = {SourceFile{scratch / "b.cu"}};
  TestModule part(std::string("#define FACTOR 2\n") + kCallee, {scratch / "inc"},
                  {"--relocatable-device-code=true"});
  part.arch(90, 'a');
  const CompileResult compiled = must(part.run(RealNvrtc::compiler()));
  spec.objects = {scratch.write("b.o", std::string(compiled.cubin.image.view()))};
  const ModuleReport report = only(open()->compile(spec));
  CHECK(report.kernels.size() == 2);
  CHECK(named(report, "second").shared_bytes == 128);
  CHECK(only(open()->compile(spec)).outcome == Outcome::hit);

  // an object's kernel by its symbol, beside a name expression of a source
  spec.names = {"second", "scale<float>"};
  const ModuleReport by_name = only(open()->compile(spec));
  REQUIRE(by_name.kernels.size() == 2);
  CHECK(named(by_name, "second").registers == named(report, "second").registers);
  spec.names = {"third"};
  const std::string missing = error_of(open()->compile(spec));
  CHECK(missing.find("no source and no object has a kernel or a variable third") !=
        std::string::npos);
  spec.names.clear();

  ModuleSpec with_ptx = spec;
  with_ptx.objects.push_back(scratch.write("k.ptx",
                                           ".version 8.0\n.target sm_90\n.address_size 64\n"
                                           ".visible .entry extra() { ret; }\n"));
  const ModuleReport both = only(open()->compile(with_ptx));
  CHECK(both.key != report.key);
  CHECK(named(both, "extra").registers > 0);
}

// fault 290
TEST_CASE_FIXTURE(LinkFixture, "what is wrong with a link is said by its symbols and files") {
  ModuleSpec alone = linked(LinkMode::rdc);
  alone.sources.pop_back();
  for (const LinkMode mode : {LinkMode::rdc, LinkMode::lto}) {
    alone.link = mode;
    const std::string undefined = error_of(open()->compile(alone));
    CHECK(undefined.find("does not link for sm_90a (nvJitLink ") != std::string::npos);
    CHECK(undefined.find("_Z5twicei") != std::string::npos);
    CHECK(undefined.find("No source and no object") != std::string::npos);

    ModuleSpec doubled = linked(mode);
    scratch.write("c.cu", kCallee);
    doubled.sources.push_back(SourceFile{scratch / "c.cu"});
    const std::string twice = error_of(open()->compile(doubled));
    CHECK(twice.find("efin") != std::string::npos);
    CHECK(twice.find("Define it in one source") != std::string::npos);
  }
  const auto opened = open();
  CHECK(only(opened->compile(linked(LinkMode::rdc))).outcome == Outcome::compiled);  // it goes on
}

// fault 293
TEST_CASE_FIXTURE(LinkFixture, "an object that is none, or cut, fails the link, and nothing else") {
  TestModule part(std::string("#define FACTOR 2\n") + kCallee, {scratch / "inc"},
                  {"--relocatable-device-code=true"});
  part.arch(90, 'a');
  const std::string image(must(part.run(RealNvrtc::compiler())).cubin.image.view());
  for (const std::string& bytes : {std::string("no object"), image.substr(0, image.size() / 2),
                                   image.substr(0, 80), std::string(1, '\0')}) {
    ModuleSpec spec = linked(LinkMode::rdc);
    spec.objects = {scratch.write("bad.o", bytes)};
    const std::string error = error_of(open()->compile(spec));
    CHECK(error.find("m") != std::string::npos);
  }
  CHECK(only(open()->compile(linked(LinkMode::rdc))).outcome == Outcome::compiled);
}

// fault 293
TEST_CASE_FIXTURE(LinkFixture, "an executable cubin is refused: nvJitLink would leave it out") {
  TestModule other("extern \"C\" __global__ void k() {}\n");
  other.arch(90, 'a');
  ModuleSpec spec = linked(LinkMode::rdc);
  spec.objects = {scratch.write(
      "k.cubin", std::string(must(other.run(RealNvrtc::compiler())).cubin.image.view()))};
  const std::string error = error_of(open()->compile(spec));
  CHECK(error.find("k.cubin has executable device code") != std::string::npos);
  CHECK(error.find("-rdc=true") != std::string::npos);
}

// fault 294
TEST_CASE("a machine without nvJitLink says what to install, and compiles what does not link") {
  const ScratchFolder folder;
  NvrtcCompilerOptions options = linking(real_options());
  const auto identity = NvrtcCompiler(options).identity();
  REQUIRE(identity);
  options.install = identity->install;
  const std::string alone = folder / "lib";
  std::filesystem::create_directory(alone);
  for (const std::string& library : {identity->install.library, identity->install.builtins}) {
    std::filesystem::create_symlink(library, alone / std::filesystem::path(library).filename());
  }
  options.install->library =
      (alone / std::filesystem::path(identity->install.library).filename()).string();
  options.search = NvrtcSearch();
  options.search.system = false;
  NvrtcCompiler compiler(options);
  const auto linker = compiler.linker();
  REQUIRE_FALSE(linker);
  CHECK(linker.error().code() == ErrorCode::not_found);
  CHECK(linker.error().message().find("nvidia-nvjitlink") != std::string::npos);
  CHECK(linker.error().message().find(alone) != std::string::npos);
  TestModule module("extern \"C\" __global__ void k() {}\n");
  must(module.run(compiler));
}

TEST_CASE("every nvJitLink beside an NVRTC is observed and links") {
  std::size_t linked = 0;
  for (const std::string& root : further_roots()) {
    CAPTURE(root);
    NvrtcCompiler compiler(linking(real_options(root)));
    const auto linker = compiler.linker();
    if (!linker) {
      CHECK(linker.error().code() == ErrorCode::not_found);  // not fetched for each version
      continue;
    }
    ++linked;
    for (const char* argument : {"--relocatable-device-code=true", "--dlink-time-opt"}) {
      CAPTURE(argument);
      const CompileResult result = must(link_two(compiler, *linker, argument));
      CHECK(result.observed);
      CHECK(result.cubin.log.empty());
      REQUIRE(result.cubin.kernels.size() == 1);
      CHECK(result.cubin.kernels[0].lowered == "k");
      CHECK(result.cubin.kernels[0].registers > 0);
    }
  }
  CHECK(linked >= 2);
}

TEST_CASE("fault 314: a worker that linked an object is not used again") {
  const ScratchFolder scratch;
  const std::string started = scratch / "started";
  NvrtcCompilerOptions options = linking(real_options());
  options.worker = counted_worker(scratch, started);
  NvrtcCompiler compiler(std::move(options));
  const auto linker = compiler.linker();
  REQUIRE(linker);
  const std::string rdc = "--relocatable-device-code=true";
  TestModule part("__device__ int unused;\n", {}, {rdc});
  part.arch(90, 'a');
  const VirtualSource object{"/cukiln/obj/0/b.o", must(part.run(compiler)).cubin.image};
  must(link_two(compiler, *linker, rdc));
  const std::size_t before = lines_in(started);
  must(link_two(compiler, *linker, rdc));
  CHECK(lines_in(started) == before);
  must(link_two(compiler, *linker, rdc, {object}));
  CHECK(lines_in(started) == before);
  must(link_two(compiler, *linker, rdc));
  CHECK(lines_in(started) == before + 1);
}

// fault 294
TEST_CASE("the error names an nvJitLink that is older than NVRTC") {
  const auto linker = NvrtcCompiler(linking(real_options())).identity(Tool::nvjitlink);
  REQUIRE(linker);
  std::size_t older = 0;
  for (const std::string& root : further_roots()) {
    CAPTURE(root);
    NvrtcCompilerOptions options = linking(real_options(root));
    const auto identity = NvrtcCompiler(options).identity();
    REQUIRE(identity);
    const std::string& version = identity->toolchain.version;
    if (version.substr(0, 2) != linker->toolchain.version.substr(0, 2) ||
        std::stod(version) <= std::stod(linker->toolchain.version)) {
      continue;
    }
    ++older;
    const ScratchFolder folder;
    options.install = identity->install;
    for (const std::string& library :
         {identity->install.library, identity->install.builtins, linker->install.library}) {
      std::filesystem::create_symlink(library, folder / std::filesystem::path(library).filename());
    }
    options.install->library =
        folder / std::filesystem::path(identity->install.library).filename().string();
    options.search = NvrtcSearch();
    options.search.system = false;
    NvrtcCompiler mixed(options);
    for (const char* argument : {"--relocatable-device-code=true", "--dlink-time-opt"}) {
      CAPTURE(argument);
      const auto linked = link_two(mixed, *mixed.linker(), argument);
      REQUIRE_FALSE(linked);
      CHECK(linked.error().message().find("Install nvJitLink of NVRTC's version, " + version) !=
            std::string::npos);
    }
  }
  CHECK(older >= 1);
}
