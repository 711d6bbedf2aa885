// SPDX-License-Identifier: Apache-2.0
#include "core/key/file_macro.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

// fault 345
TEST_CASE("a text that names its file is found, also where line splices or trigraphs divide it") {
  for (const char* text :
       {"x = __FILE__;", "__BASE_FILE__", "__builtin_FILE()", "__FI\\\nLE__", "_\\\n_F\\\r\nILE__",
        "__BASE_FI?\?/\nLE__", "__built\\\nin_FILE()", "std::source_loc\\\nation"}) {
    CAPTURE(text);
    CHECK(names_its_file(text));
  }
  CHECK_FALSE(names_its_file("#define A \\\n  FILE\n__LINE__ \\\n"));
}

// fault 333
TEST_CASE("a folder of CUDA's libraries is known by the header that each compile with it reads") {
  const auto folder = [](const char* path) { return folder_of_cuda_library(path, "// NVIDIA"); };
  CHECK(folder("/a/cub/version.cuh") == "/a/cub/");
  CHECK(folder("/a/thrust/version.h") == "/a/thrust/");
  CHECK(folder("/a/cuda/std/detail/__config") == "/a/cuda/std/");
  for (const char* path : {"/a/cub/util_debug.cuh", "/a/cub/version.h", "/a/scub/version.cuh",
                           "/version.cuh", "version.cuh", ""}) {
    CAPTURE(path);
    CHECK(folder(path).empty());
  }
  CHECK(folder_of_cuda_library("/a/cub/version.cuh", "#define MINE 1\n").empty());
}
