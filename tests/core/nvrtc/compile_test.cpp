// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

using Paths = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool has(const Paths& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

/// The dependencies below the module's own include folders.
Paths own(const Paths& paths) {
  Paths out;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(out), [](const std::string& path) {
    return path.compare(0, std::string(kIncludeRoot).size(), kIncludeRoot) == 0 ||
           path.compare(0, std::string(kSourceRoot).size(), kSourceRoot) == 0;
  });
  return out;
}

constexpr const char* kEmptyKernel = "extern \"C\" __global__ void k() {}\n";

}  // namespace

TEST_CASE_FIXTURE(RealNvrtc, "a kernel compiles for its target and reports its resources") {
  TestModule module(
      "#include <cuda_fp16.h>\n"
      "extern \"C\" __global__ void twice(__half* p) { p[threadIdx.x] = p[threadIdx.x] + "
      "p[threadIdx.x]; }\n"
      "extern \"C\" __global__ void shared(float* p) { __shared__ float s[256];\n"
      "  s[threadIdx.x] = p[threadIdx.x]; __syncthreads(); p[threadIdx.x] = s[255 - threadIdx.x]; "
      "}\n");
  const CompileResult result = must(module.run(compiler()));
  CHECK(check_image(result.cubin.image, module.request.target));
  REQUIRE(result.cubin.kernels.size() == 2);
  for (const KernelInfo& kernel : result.cubin.kernels) {
    CHECK(kernel.registers > 0);
    CHECK(kernel.shared_bytes >= (kernel.name == "shared" ? 1024u : 0u));
  }
  CHECK(result.observed);
  CHECK(result.cubin.log.empty());
  CHECK(result.compile_us > 0);
  CHECK(has(result.dependencies.paths(Observation::Kind::file), "/cukiln/toolkit/cuda_fp16.h"));
  CHECK(result.dependencies.portable());
}

TEST_CASE_FIXTURE(RealNvrtc, "a used worker gives the same bytes as a new one") {
  TestModule module("#include <cuda_fp16.h>\n" + std::string(kEmptyKernel));
  TestModule broken("extern \"C\" __global__ void k( {}");
  const CompileResult fresh = must(module.run(compiler()));
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(broken.run(compiler()));
    CHECK(must(module.run(compiler())).cubin.image.view() == fresh.cubin.image.view());
  }
}

TEST_CASE_FIXTURE(RealNvrtc,
                  "a worker that was told to explain its optimisations is not used again") {
  const std::string text =
      "__device__ __noinline__ float twice(float x) { return 2 * x; }\n"
      "extern \"C\" __global__ void k(float* x) { *x = twice(*x); }\n";
  TestModule module(text);
  CHECK(must(module.run(compiler())).cubin.log.empty());
  TestModule explained(text, {}, {"--optimization-info=inline"});
  CHECK(contains(must(explained.run(compiler())).cubin.log, "not inlined"));
  CHECK(must(module.run(compiler())).cubin.log.empty());  // NVRTC would go on explaining
}

TEST_CASE_FIXTURE(RealNvrtc,
                  "an include behind a false condition is not a dependency, a computed one is") {
  const ScratchFolder include;
  for (const char* name : {"never.h", "computed.h", "plain.h"}) {
    include.write(name, "");
  }
  TestModule module(
      "#if 0\n#include \"never.h\"\n#endif\n#define NAME <computed.h>\n#include NAME\n"
      "#include \"plain.h\"\n" +
          std::string(kEmptyKernel),
      {include.path()});
  const CompileResult result = must(module.run(compiler()));
  CHECK(own(result.dependencies.paths(Observation::Kind::file)) ==
        Paths{"/cukiln/inc/0/computed.h", "/cukiln/inc/0/plain.h"});
}

TEST_CASE_FIXTURE(RealNvrtc, "__has_include depends on what it found and on what it did not find") {
  const ScratchFolder include;
  include.write("there.h", "");
  TestModule module("#if __has_include(\"there.h\") && !__has_include(\"gone.h\")\n" +
                        std::string(kEmptyKernel) + "#endif\n",
                    {include.path()});
  const CompileResult result = must(module.run(compiler()));
  CHECK(result.cubin.kernels.size() == 1);
  CHECK(has(result.dependencies.paths(Observation::Kind::file), "/cukiln/inc/0/there.h"));
  CHECK(has(result.dependencies.paths(Observation::Kind::absent), "/cukiln/inc/0/gone.h"));
}

TEST_CASE_FIXTURE(RealNvrtc, "#include_next continues in the next folder") {
  const ScratchFolder include;
  include.write("a/x.h", "#include_next <x.h>\n#define A 1\n");
  include.write("b/x.h", "#define B 1\n");
  TestModule module(
      "#include <x.h>\n#if defined(A) && defined(B)\n" + std::string(kEmptyKernel) + "#endif\n",
      {include / "a", include / "b"});
  const CompileResult result = must(module.run(compiler()));
  CHECK(result.cubin.kernels.size() == 1);
  CHECK(own(result.dependencies.paths(Observation::Kind::file)) ==
        Paths{"/cukiln/inc/0/x.h", "/cukiln/inc/1/x.h"});
}

TEST_CASE_FIXTURE(RealNvrtc, "headers of one name in two folders are two headers") {
  const ScratchFolder include;
  include.write("a/all.h", "#pragma once\n#include \"config.h\"\n");
  include.write("b/all.h", "#pragma once\n#include \"config.h\"\n");
  include.write("a/config.h", "#define A 1\n");
  include.write("b/config.h", "#define B 2\n");
  TestModule module("#include \"a/all.h\"\n#include \"b/all.h\"\nstatic_assert(A + B == 3);\n" +
                        std::string(kEmptyKernel),
                    {include.path()});
  const CompileResult result = must(module.run(compiler()));
  CHECK(own(result.dependencies.paths(Observation::Kind::file)) ==
        Paths{"/cukiln/inc/0/a/all.h", "/cukiln/inc/0/a/config.h", "/cukiln/inc/0/b/all.h",
              "/cukiln/inc/0/b/config.h"});
}

TEST_CASE_FIXTURE(RealNvrtc, "#pragma once recognises a header by any of its paths") {
  const ScratchFolder include;
  include.write("a/x.h", "#pragma once\nstruct OnlyOnce {};\n");
  include.write("a/sub/up.h", "#include \"../x.h\"\n");
  std::filesystem::create_symlink("a", include / "link");
  TestModule module(
      "#include \"a/x.h\"\n#include \"a/sub/../x.h\"\n#include \"a/sub/up.h\"\n"
      "#include \"link/x.h\"\n" +
          std::string(kEmptyKernel),
      {include.path()});
  const CompileResult result = must(module.run(compiler()));
  CHECK(has(result.dependencies.paths(Observation::Kind::file), "/cukiln/inc/0/a/sub/../x.h"));
}

TEST_CASE_FIXTURE(RealNvrtc, ".. after a link is resolved by the file system") {
  const ScratchFolder include;
  include.write("far/away/inside.h", "");
  include.write("far/w.h", "#define RIGHT 1\n");
  include.write("w.h", "#define RIGHT 0\n");
  std::filesystem::create_symlink("far/away", include / "link");
  TestModule module("#include \"link/../w.h\"\nstatic_assert(RIGHT);\n" + std::string(kEmptyKernel),
                    {include.path()});
  must(module.run(compiler()));
}

TEST_CASE_FIXTURE(RealNvrtc, "a header in an absent folder is an absent path of its own") {
  const ScratchFolder include;
  include.write("b/lib/x.h", "");
  include.write("b/lib/y.h", "");
  std::filesystem::create_directory(include / "a");
  TestModule module("#include <lib/x.h>\n#include <lib/y.h>\n" + std::string(kEmptyKernel),
                    {include / "a", include / "b"});
  const CompileResult result = must(module.run(compiler()));
  CHECK(has(result.dependencies.paths(Observation::Kind::absent), "/cukiln/inc/0/lib/x.h"));
  CHECK(has(result.dependencies.paths(Observation::Kind::absent), "/cukiln/inc/0/lib/y.h"));
}

// fault 370
TEST_CASE_FIXTURE(RealNvrtc, "an absolute include is literal, and makes the set not portable") {
  const ScratchFolder elsewhere;
  const std::string header = elsewhere.write("x.h", "");
  TestModule module("#include \"" + header + "\"\n" + std::string(kEmptyKernel));
  const CompileResult result = must(module.run(compiler()));
  CHECK(has(result.dependencies.paths(Observation::Kind::file), header));
  CHECK_FALSE(result.dependencies.portable());
}

TEST_CASE_FIXTURE(RealNvrtc, "several sources are one translation unit, and no dependencies") {
  TestModule module("__device__ int helper() { return 1; }\n");
  module.request.sources.push_back(
      {"/cukiln/src/second.cu",
       SharedBytes(std::string("extern \"C\" __global__ void k(int* p) { *p = helper(); }\n"))});
  const CompileResult result = must(module.run(compiler()));
  CHECK(result.cubin.kernels.size() == 1);
  CHECK(own(result.dependencies.paths(Observation::Kind::file)).empty());
  CHECK(result.dependencies.paths(Observation::Kind::folder).empty());
}

TEST_CASE_FIXTURE(RealNvrtc, "a missing header is named with the folders that were searched") {
  const ScratchFolder include;
  include.write("x.h", "");
  TestModule module("#include \"lib/gone.cuh\"\n" + std::string(kEmptyKernel), {include.path()});
  const auto outcome = module.run(compiler());
  REQUIRE_FALSE(outcome);
  CHECK(contains(outcome.error().message(), "lib/gone.cuh is in none of the searched folders"));
  CHECK(contains(outcome.error().message(), include / "lib/gone.cuh"));

  include.write("lib/gone.cuh", "");
  must(module.run(compiler()));
}

TEST_CASE_FIXTURE(RealNvrtc, "__TIME__ is noticed, and the toolkit's headers have none") {
  TestModule dated("__device__ const char* t = __TIME__;\n" + std::string(kEmptyKernel));
  CHECK(must(dated.run(compiler())).uses_time);
  TestModule plain("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + std::string(kEmptyKernel));
  CHECK_FALSE(must(plain.run(compiler())).uses_time);
}

TEST_CASE_FIXTURE(RealNvrtc, "warnings are in the log of a success, with virtual names") {
  const ScratchFolder include;
  include.write("w.h", "__device__ inline void f() { int unused_one; }\n");
  TestModule module("#include \"w.h\"\n" + std::string(kEmptyKernel), {include.path()});
  const CompileResult result = must(module.run(compiler()));
  CHECK(contains(result.cubin.log, "/cukiln/inc/0/w.h(1)"));
  CHECK_FALSE(contains(result.cubin.log, include.path()));
  CHECK_FALSE(contains(result.cubin.log, "ptxas info"));
}
