// SPDX-License-Identifier: Apache-2.0
#include "core/compile/bundled_headers.hpp"

#include <atomic>
#include <filesystem>
#include <thread>

#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

namespace fs = std::filesystem;

constexpr const char* kSource =
    "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n"
    "static_assert(CUDART_VERSION >= 13030);\n"
    "extern \"C\" __global__ void k(float4* p, cudaError_t* e) {\n"
    "  using Reduce = cub::BlockReduce<float, 128>;\n"
    "  __shared__ typename Reduce::TempStorage shared;\n"
    "  const float sum = Reduce(shared).Sum(__half2float(__float2half(p[threadIdx.x].x)));\n"
    "  p[threadIdx.x] = make_float4(sum, 0, 0, 0);\n"
    "  *e = cudaSuccess;\n"
    "}\n";

/// The newest NVRTC alone: its two libraries, without a header.
struct LoneNvrtc {
  ScratchFolder root;
  ScratchFolder store;
  NvrtcCompilerOptions options;

  LoneNvrtc() {
    const auto there = find_nvrtc(real_options(further_roots().back()).search);
    REQUIRE(there);
    fs::create_directory(root / "lib");
    for (const std::string& library : {there->library, there->builtins}) {
      fs::create_symlink(library, fs::path(root / "lib") / fs::path(library).filename());
    }
    options = real_options(root.path());
    options.headers_folder = store / "headers";
  }
  std::string folder() {
    const auto identity = NvrtcCompiler(options).identity();
    REQUIRE_MESSAGE(identity, identity.error().message());
    CAPTURE(identity->headers_problem);
    REQUIRE(!identity->install.headers.empty());
    return identity->install.headers.back();
  }
};

CompileResult compile(const NvrtcCompilerOptions& options) {
  NvrtcCompiler compiler(options);
  TestModule module(kSource, {}, {std::string("--include-path=") + kToolkitRoot + "/cccl"});
  return must(module.run(compiler));
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files.push_back(fs::relative(entry.path(), folder));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("an NVRTC without headers beside it compiles with those that it carries") {
  LoneNvrtc here;
  const CompileResult result = compile(here.options);
  CHECK(result.observed);
  CHECK(result.cubin.kernels.size() == 1);
  const auto files = result.dependencies.paths(Observation::Kind::file);
  for (const char* header :
       {"/cuda_runtime.h", "/cuda_fp16.h", "/cccl/cub/block/block_reduce.cuh"}) {
    CHECK(std::count(files.begin(), files.end(), std::string(kToolkitRoot) + header) == 1);
  }
  CHECK(fs::status(here.options.headers_folder).permissions() == fs::perms::owner_all);

  // Two hosts have equal headers, and so equal keys and cubins.
  LoneNvrtc there;
  const CompileResult again = compile(there.options);
  CHECK(again.dependencies.canonical() == result.dependencies.canonical());
  CHECK(again.cubin.image.view() == result.cubin.image.view());
  const auto own = files_below(here.folder());
  CHECK(own == files_below(there.folder()));
  CHECK(own.size() > 1000);
  for (const std::string& name : own) {
    CHECK(fs::path(name).filename().string().front() != '.');  // no marker with the time, no lock
  }
}

TEST_CASE("headers that are found are used instead of those that NVRTC carries") {
  LoneNvrtc here;
  here.options.search.default_roots.push_back(further_roots().back());
  const auto identity = NvrtcCompiler(here.options).identity();
  REQUIRE(identity);
  CHECK(has_cuda_headers(identity->install.headers));
  CHECK_FALSE(fs::exists(here.options.headers_folder));
  CHECK(carries_headers("13.3.29"));
  CHECK_FALSE(carries_headers("13.2.78"));
}

TEST_CASE("fault 171: headers of a killed install are not used, and a later one replaces them") {
  LoneNvrtc here;
  const std::string folder = here.folder();
  const auto all = files_below(folder);
  fs::remove_all(folder);
  fs::create_directory(folder + ".part");
  here.store.write("headers/" + fs::path(folder).filename().string() + ".part/cuda_fp16.h", "half");
  CHECK(here.folder() == folder);
  CHECK(files_below(folder) == all);
  CHECK_FALSE(fs::exists(folder + ".part"));
}

TEST_CASE(
    "fault 172: a folder that cannot be written is named, and kernels without headers compile") {
  LoneNvrtc here;
  here.options.headers_folder =
      here.store.write("file", "") + "/headers";  // as root, modes do not matter
  NvrtcCompiler compiler(here.options);
  const auto identity = compiler.identity();
  REQUIRE(identity);
  CHECK(identity->headers_problem.find(here.options.headers_folder) != std::string::npos);
  CHECK(identity->headers_problem.find("Not a directory") != std::string::npos);
  TestModule plain("extern \"C\" __global__ void k(int* p) { *p = 1; }\n");
  must(plain.run(compiler));
  TestModule module(kSource);
  const auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  CAPTURE(outcome.error().message());
  CHECK(outcome.error().message().find("the headers that NVRTC carries cannot be installed in " +
                                       here.options.headers_folder) != std::string::npos);
}

TEST_CASE("fault 173: several processes install the headers once") {
  LoneNvrtc here;
  const auto identity = NvrtcCompiler(here.options).identity();
  REQUIRE(identity);
  fs::remove_all(here.options.headers_folder);
  const std::string counted = here.store / "started";
  const std::string worker = counted_worker(here.root, counted);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto folder = install_bundled_headers(worker, identity->install, identity->toolchain,
                                                  here.options.headers_folder);
      good += folder && fs::exists(*folder + "/cuda_fp16.h") ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == 4);
  CHECK(lines_in(counted) == 1);
}
