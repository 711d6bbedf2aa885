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

// fault 408
TEST_CASE("each name of a file becomes unusable where its use cannot go unnoticed") {
  const auto made = [](const char* text) { return with_unusable_names(text).value_or("nothing"); };
  CHECK(made("#define A(x) b(#x, __FILE__,__FILE__)") == "#define A(x) b(#x, \\xq_____,\\xq_____)");
  CHECK(made("a(__BASE_FILE__, __builtin_FILE());") == "a(\\xq__________, \\xq___________());");
  CHECK(made("\"ERROR\" __FILE__ (\"r\")") == "\"ERROR\" \\xq_____ (\"r\")");
  for (const char* text :
       {"a__FILE__", "__FILE__", "\"\\__FILE__\"", "a \\\n__FILE__", " __FI\\\nLE__",
        " __FILE__ a__FILE__", " __FILE__ std::source_location", "R\"( __FILE__)\"",
        "u8R\"( __FILE__)\"", "#define A(x) R ## #x\n __FILE__", "R\\\n\"( __FILE__)\"",
        "\"?\?/ __FILE__\""}) {
    CAPTURE(text);
    CHECK_FALSE(with_unusable_names(text));
  }
}

// fault 411
TEST_CASE("a text that may make a raw string of another's words is found") {
  for (const char* text :
       {"#define S(x) R ## #x", "#define S(x) R/**/## #x", "#define S(x) u8R\v## #x", "A(R, \"(\")",
        "# define P R\n", "#define P LR\r\n", "-DP=R", "#define F(x) x ##\"(\""}) {
    CAPTURE(text);
    CHECK(may_paste_raw_strings(text));
  }
  for (const char* text : {"template <class R, class S>\nR\nf(R r);", "xR ## y", "R_ #", "f<R>(R)",
                           "a ## b", "#define A(R) b(R)\n"}) {
    CAPTURE(text);
    CHECK_FALSE(may_paste_raw_strings(text));
  }
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
