// SPDX-License-Identifier: Apache-2.0
#include "core/compile/nvrtc_library.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include "support/scratch.hpp"

using namespace cukiln;
using testing::ScratchFolder;

namespace {

/// Searches the test's folders only, nothing of the machine.
NvrtcSearch only(const ScratchFolder& folder) {
  NvrtcSearch search;
  search.system = false;
  search.default_roots = {folder.path()};
  return search;
}

void write_headers(const ScratchFolder& folder, const std::string& at, int version) {
  folder.write(at + "/cuda_fp16.h", "");
  folder.write(at + "/cuda.h", "/* … */\n#define CUDA_VERSION " + std::to_string(version) + "\n");
}

}  // namespace

TEST_CASE("a wheel of CUDA 13 is found with its builtins and headers") {
  const ScratchFolder root;
  const std::string library = root.write("nvidia/cu13/lib/libnvrtc.so.13", "");
  root.write("nvidia/cu13/lib/libnvrtc.alt.so.13", "");
  const std::string builtins = root.write("nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "");
  root.write("nvidia/cu13/lib/libnvrtc-builtins.alt.so.13.0", "");
  write_headers(root, "nvidia/cu13/include", 13000);
  root.write("nvidia/cu13/include/cccl/cub/cub.cuh", "");
  const auto found = find_nvrtc(only(root));
  REQUIRE(found);
  CHECK(found->library == library);
  CHECK(found->builtins == builtins);
  CHECK(found->headers ==
        std::vector<std::string>{root / "nvidia/cu13/include", root / "nvidia/cu13/include/cccl"});
  CHECK(header_version(found->headers) == "13.0");
}

TEST_CASE("each wheel of CUDA 12 has a folder of its own") {
  const ScratchFolder root;
  const std::string library = root.write("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "");
  const std::string builtins = root.write("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "");
  root.write("nvidia/cuda_nvrtc/include/nvrtc.h", "");
  write_headers(root, "nvidia/cuda_runtime/include", 12090);
  root.write("nvidia/cuda_cccl/include/cub/cub.cuh", "");
  const auto found = find_nvrtc(only(root));
  REQUIRE(found);
  CHECK(found->library == library);
  CHECK(found->builtins == builtins);
  CHECK(found->headers == std::vector<std::string>{root / "nvidia/cuda_runtime/include",
                                                   root / "nvidia/cuda_cccl/include"});
}

TEST_CASE("a toolkit has its libraries in lib64") {
  const ScratchFolder root;
  const std::string library = root.write("lib64/libnvrtc.so.13.0.88", "");
  root.write("lib64/libnvrtc.so", "");
  write_headers(root, "include", 13000);
  NvrtcSearch search = only(root);
  search.default_roots.clear();
  search.cuda_home = root.path();
  const auto found = find_nvrtc(search);
  REQUIRE(found);
  CHECK(found->library == library);
  CHECK(found->headers == std::vector<std::string>{root / "include"});
}

TEST_CASE("a toolkit with a compiler and headers but no NVRTC is passed over") {
  const ScratchFolder toolkit;
  toolkit.write("bin/nvcc", "");
  write_headers(toolkit, "include", 12060);
  const ScratchFolder wheels;
  const std::string library = wheels.write("nvidia/cu13/lib/libnvrtc.so.13", "");
  write_headers(wheels, "nvidia/cu13/include", 13000);
  NvrtcSearch search = only(wheels);
  search.cuda_home = toolkit.path();
  const auto found = find_nvrtc(search);
  REQUIRE(found);
  CHECK(found->library == library);
  CHECK(header_version(found->headers) == "13.0");
}

TEST_CASE("headers of the library's major version are preferred") {
  const ScratchFolder library;
  library.write("lib/libnvrtc.so.13", "");
  const ScratchFolder old;
  old.write("lib64/nothing", "");
  write_headers(old, "include", 12090);
  const ScratchFolder fitting;
  write_headers(fitting, "include", 13010);
  NvrtcSearch search;
  search.system = false;
  search.nvrtc_library = library / "lib/libnvrtc.so.13";
  search.default_roots = {old.path(), fitting.path()};
  CHECK(header_version(find_nvrtc(search)->headers) == "13.1");
  search.default_roots = {old.path()};
  CHECK(header_version(find_nvrtc(search)->headers) ==
        "12.9");  // the only one, so that NVRTC's error shows
}

TEST_CASE("wheels of the environment come before CUDA_HOME, and that before the default roots") {
  const ScratchFolder root;
  const std::string wheel =
      root.write("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "");
  const std::string conda = root.write("conda/lib/libnvrtc.so.12", "");
  const std::string listed = root.write("listed/libnvrtc.so.12", "");
  const std::string home = root.write("toolkit/lib64/libnvrtc.so.12", "");
  const std::string last = root.write("lib64/libnvrtc.so.12", "");
  NvrtcSearch search = only(root);
  search.virtual_env = root / "venv";
  search.conda_prefix = root / "conda";
  search.library_path = {root / "listed"};
  search.cuda_home = root / "toolkit";
  CHECK(find_nvrtc(search)->library == wheel);
  search.virtual_env.clear();
  CHECK(find_nvrtc(search)->library == conda);
  search.conda_prefix.clear();
  CHECK(find_nvrtc(search)->library == listed);
  search.library_path.clear();
  CHECK(find_nvrtc(search)->library == home);
  search.cuda_home.clear();
  CHECK(find_nvrtc(search)->library == last);
}

TEST_CASE(
    "the newest of several libraries in a folder is used, with builtins of its major version") {
  const ScratchFolder root;
  root.write("lib64/libnvrtc.so.9.2", "");
  const std::string newest = root.write("lib64/libnvrtc.so.12.9", "");
  const std::string builtins = root.write("lib64/libnvrtc-builtins.so.12.9", "");
  root.write("lib64/libnvrtc-builtins.so.13.0", "");
  const auto found = find_nvrtc(only(root));
  CHECK(found->library == newest);
  CHECK(found->builtins == builtins);
}

TEST_CASE("an NVRTC that is too old for the target is passed over when a newer one follows") {
  const ScratchFolder old;
  const std::string old_library = old.write("lib64/libnvrtc.so.12", "");
  old.write("lib64/libnvrtc-builtins.so.12.6", "");
  const ScratchFolder wheels;
  const std::string new_library = wheels.write("nvidia/cu13/lib/libnvrtc.so.13", "");
  write_headers(wheels, "nvidia/cu13/include", 13000);
  NvrtcSearch search = only(wheels);
  search.cuda_home = old.path();
  CHECK(find_nvrtc(search)->library == old_library);
  search.target = {90, 'a'};
  CHECK(find_nvrtc(search)->library == old_library);
  search.target = {100, 'a'};
  const auto found = find_nvrtc(search);
  CHECK(found->library == new_library);
  CHECK(found->headers == std::vector<std::string>{wheels / "nvidia/cu13/include"});
  REQUIRE(found->passed_over.size() == 1);
  for (const std::string& part :
       {old_library, std::string("12.6"), std::string("sm_100a"), std::string("12.8")}) {
    CHECK(found->passed_over.front().find(part) != std::string::npos);
  }
  CHECK(found->too_old.empty());
  search.nvrtc_library = old_library;  // a configured library is used
  CHECK(find_nvrtc(search)->library == old_library);
  CHECK(find_nvrtc(search)->too_old.find("12.8") != std::string::npos);
}

TEST_CASE(
    "an NVRTC that is too old is used if there is no other, and its compile error explains it") {
  const ScratchFolder root;
  const std::string library = root.write("lib64/libnvrtc.so.12.6.85", "");
  const std::string builtins = root.write("lib64/libnvrtc-builtins.so.12.6", "");
  root.write("lib/libnvrtc.so.12.4", "");
  NvrtcSearch search = only(root);
  search.target = {100, 'a'};
  const auto found = find_nvrtc(search);
  REQUIRE(found);
  CHECK(found->library == library);
  CHECK(found->builtins == builtins);
  CHECK(found->passed_over.empty());
  CHECK(found->too_old.find(library) != std::string::npos);
}

TEST_CASE("the version may be in the name of a link's target; an unknown version is not too old") {
  const ScratchFolder root;
  const std::string real = root.write("elsewhere/libnvrtc.so.12.6.85", "");
  root.write("lib64/nothing", "");
  const std::string link = root / "lib64/libnvrtc.so.12";
  REQUIRE(::symlink(real.c_str(), link.c_str()) == 0);
  const std::string unknown = root.write("lib/libnvrtc.so.12", "");
  NvrtcSearch search = only(root);
  CHECK(find_nvrtc(search)->library == link);
  search.target = {100, 0};
  CHECK(find_nvrtc(search)->library == unknown);
}

TEST_CASE("each target has a minimum NVRTC version") {
  using Version = std::pair<int, int>;
  CHECK(oldest_nvrtc_for({80, 0}) == Version(0, 0));
  CHECK(oldest_nvrtc_for({90, 'a'}) == Version(12, 0));
  CHECK(oldest_nvrtc_for({100, 'a'}) == Version(12, 8));
  CHECK(oldest_nvrtc_for({120, 0}) == Version(12, 8));
  CHECK(oldest_nvrtc_for({100, 'f'}) == Version(12, 9));
  CHECK(oldest_nvrtc_for({103, 'a'}) == Version(12, 9));
  CHECK(oldest_nvrtc_for({121, 'a'}) == Version(12, 9));
  CHECK(oldest_nvrtc_for({110, 'a'}) == Version(13, 0));
  CHECK(oldest_nvrtc_for({107, 'a'}) == Version(13, 4));
}

TEST_CASE("the targets of an NVRTC are its capabilities with the suffixes that its version knows") {
  const auto names = [](const std::vector<std::uint32_t>& capabilities, const char* version) {
    std::string text;
    for (const Target target : targets_of_nvrtc(capabilities, version)) {
      text += target.name() + " ";
    }
    return text;
  };
  CHECK(names({89, 90, 100}, "12.8.93") == "sm_89 sm_90 sm_90a sm_100 sm_100a ");
  CHECK(names({90, 100}, "12.9.86") == "sm_90 sm_90a sm_100 sm_100a sm_100f ");
  CHECK(names({107, 121}, "13.5.37") == "sm_107 sm_107a sm_107f sm_121 sm_121a sm_121f ");
  CHECK(names({}, "13.5.37").empty());
  CHECK(is_older("12.8.93", {12, 9}));
  CHECK_FALSE(is_older("13.0", {12, 9}));
}

TEST_CASE("the error names every folder searched") {
  const ScratchFolder root;
  NvrtcSearch search = only(root);
  search.cuda_home = "/nowhere/cuda";
  const auto found = find_nvrtc(search);
  REQUIRE_FALSE(found);
  CHECK(found.error().code() == ErrorCode::not_found);
  for (const std::string& place :
       {root / "nvidia/cu13/lib", root / "lib64", std::string("/nowhere/cuda/lib64")}) {
    CHECK(found.error().message().find(place) != std::string::npos);
  }
}

TEST_CASE("a configured library is used or is an error, and never replaced by another") {
  const ScratchFolder root;
  root.write("lib64/libnvrtc.so.13", "");
  NvrtcSearch search = only(root);
  search.nvrtc_library = root / "elsewhere/libnvrtc.so.13";
  const auto found = find_nvrtc(search);
  REQUIRE_FALSE(found);
  CHECK(found.error().message().find(search.nvrtc_library) != std::string::npos);
}

TEST_CASE("configured header folders come first") {
  const ScratchFolder root;
  root.write("lib64/libnvrtc.so.13", "");
  write_headers(root, "include", 13000);
  NvrtcSearch search = only(root);
  search.include_path = {root / "mine"};
  CHECK(find_nvrtc(search)->headers == std::vector<std::string>{root / "mine", root / "include"});
}

TEST_CASE("versions are parsed from file names, except those of variants") {
  CHECK(library_version("libnvrtc.so.13", "libnvrtc.so") == "13");
  CHECK(library_version("libnvrtc.so.12.9.86", "libnvrtc.so") == "12.9.86");
  CHECK(library_version("libnvrtc.alt.so.13", "libnvrtc.so").empty());
  CHECK(library_version("libnvrtc.so", "libnvrtc.so").empty());
  CHECK(library_version("libnvrtc.so.13.bak", "libnvrtc.so").empty());
}
