// SPDX-License-Identifier: Apache-2.0

#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr const char* kSource =
    "#include <cuda_fp16.h>\n#include \"x.cuh\"\n"
    "#if __has_include(\"gone.h\")\n#error\n#endif\n"
    "extern \"C\" __global__ void k(float* p) { p[threadIdx.x] = __half2float(__float2half(X)); "
    "}\n";

std::string major_minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

TEST_CASE("every given NVRTC is observed, and its own headers are found") {
  for (const std::string& root : further_roots()) {
    CAPTURE(root);
    NvrtcCompiler compiler(real_options(root));
    const auto identity = compiler.identity();
    REQUIRE_MESSAGE(identity, identity.error().message());
    MESSAGE(root << ": NVRTC " << identity->toolchain.version);
    CHECK(identity->observed);
    CHECK(header_version(identity->install.headers) == major_minor(identity->toolchain.version));

    const ScratchFolder include;
    include.write("x.cuh", "#define X 1.0f\n");
    TestModule module(kSource, {include.path()});
    module.arch(90, 'a');
    const CompileResult result = must(module.run(compiler));
    CHECK(result.cubin.kernels.size() == 1);
    CHECK(result.cubin.kernels[0].registers > 0);
    const auto files = result.dependencies.paths(Observation::Kind::file);
    CHECK(std::count(files.begin(), files.end(), "/cukiln/inc/0/x.cuh") == 1);
    const auto absent = result.dependencies.paths(Observation::Kind::absent);
    CHECK(std::count(absent.begin(), absent.end(), "/cukiln/inc/0/gone.h") == 1);
    CHECK(result.dependencies.paths(Observation::Kind::folder).empty());
    for (const std::string& path : absent) {
      CHECK(path.compare(0, 8, "/cukiln/") == 0);
    }
  }
}

TEST_CASE("two NVRTC versions with the same headers are two toolchains") {
  std::vector<Toolchain> all;
  for (const std::string& root : further_roots()) {
    const auto toolchain = NvrtcCompiler(real_options(root)).toolchain();
    REQUIRE(toolchain);
    for (const Toolchain& other : all) {
      CHECK(other.version != toolchain->version);
      CHECK(other.content != toolchain->content);
    }
    all.push_back(*toolchain);
  }
}

TEST_CASE("an error in headers of another version names both versions") {
  const NvrtcCompilerOptions here = real_options();
  const auto own = find_nvrtc(here.search);
  REQUIRE_MESSAGE(own, own.error().message());
  for (const std::string& root : further_roots()) {
    NvrtcCompilerOptions options = real_options(root);
    const auto theirs = find_nvrtc(options.search);
    if (!theirs || header_version(theirs->headers) == header_version(own->headers)) {
      continue;
    }
    options.search.include_path = own->headers;
    NvrtcCompiler compiler(options);
    TestModule module(
        "#include <cuda_fp8.h>\n#error always\nextern \"C\" __global__ void k() {}\n");
    module.arch(90, 'a');
    const auto outcome = module.run(compiler);
    REQUIRE_FALSE(outcome);
    CAPTURE(outcome.error().message());
    CHECK(outcome.error().message().find(header_version(own->headers)) != std::string::npos);
    CHECK(outcome.error().message().find("of another version") != std::string::npos);
  }
}

TEST_CASE("fault 133: --split-compile compiles on threads, and fails with too many of them") {
  std::string source;
  for (const char* const name : {"a", "b", "c", "d"}) {
    source += std::string("extern \"C\" __global__ void ") + name +
              "(float* p) { p[threadIdx.x] = __sinf(p[threadIdx.x]); }\n";
  }
  std::vector<std::string> roots = further_roots();
  roots.emplace_back();  // of this machine
  for (const std::string& root : roots) {
    CAPTURE(root);
    NvrtcCompilerOptions options = real_options(root);
    options.worker = kPlainWorker;  // a sanitised one has no limit
    NvrtcCompiler compiler(std::move(options));
    const auto split = [&](const char* count) {
      TestModule module(source, {}, {std::string("--split-compile=") + count});
      module.arch(90, 'a');
      module.timeout = std::chrono::seconds(60);
      return module.run(compiler);
    };
    const CompileResult four = must(split("4"));
    CHECK(four.cubin.kernels.size() == 4);
    CHECK(must(split("4")).cubin.image.view() == four.cubin.image.view());
    CHECK(must(split("0")).cubin.kernels.size() == 4);  // a thread for each core
    const auto failed = split("1000");
    if (!failed) {
      CAPTURE(failed.error().message());
      CHECK(failed.error().message().find("more threads than") != std::string::npos);
    } else {
      MESSAGE("NVRTC makes no thread that it has no work for, or nothing limits this worker");
    }
    CHECK(must(split("4")).cubin.image.view() == four.cubin.image.view());
  }
}
