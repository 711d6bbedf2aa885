// SPDX-License-Identifier: Apache-2.0
#include "core/compile/include_scanner.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

TEST_CASE("literal includes are found in every spelling") {
  const auto names = includes_in(
      "#include <a/b.h>\n  #  include\t\"c.cuh\" // x\n#include MACRO\n#include_next <d.h>\n"
      "#includ <e.h>\n#include <never closed\n#include \"\"\n#pragma once\n# include<f>");
  REQUIRE(names.size() == 3);
  CHECK(names[0].name == "a/b.h");
  CHECK_FALSE(names[0].quoted);
  CHECK(names[1].name == "c.cuh");
  CHECK(names[1].quoted);
  CHECK(names[2].name == "f");
}

TEST_CASE("a conditional include is not sent ahead, one inside an include guard is") {
  const auto names = includes_in(
      "// c\n#ifndef GUARD_H\n#  define GUARD_H\n#include <a>\n#ifdef X\n#include <b>\n"
      "#if Y\n#include <c>\n#endif\n#include <d>\n#endif // X\n#include <e>\n#endif\n#include <f>");
  REQUIRE(names.size() == 3);
  CHECK(names[0].name == "a");
  CHECK(names[1].name == "e");
  CHECK(names[2].name == "f");
  CHECK(includes_in("#ifndef A\n#define B\n#include <x>\n#endif\n").empty());
  CHECK(includes_in("#endif\n#endif\n#include <x>\n").size() == 1);
}

TEST_CASE("an include quoted in a comment is ignored") {
  CHECK(includes_in("//! #include <a>\n * #include <b>\n").empty());
}

// fault 120
TEST_CASE("an include in a block comment is ignored, one after it is found") {
  const auto names = includes_in(
      "/* by hand:\n#include \"secret.h\"\n */\n#include <a>\n//* no comment\n#include <b>\n"
      "const char* all = \"dir/*\";\n#include <c>\nchar q = '\"'; /*\n#include <d>\n*/\n"
      "int x; // http://x/* \n#include <e>\n/**/ /* *//*\n#if 0\n*/\n#include <f>\n"
      "#define S \"\\\"\" /*\n#include <g>\n");
  REQUIRE(names.size() == 5);
  CHECK(names[0].name == "a");
  CHECK(names[1].name == "b");
  CHECK(names[2].name == "c");
  CHECK(names[3].name == "e");
  CHECK(names[4].name == "f");
}

TEST_CASE("the include folders are read off NVRTC's arguments") {
  const CompileOptions options{
      {"--std=c++17", "--include-path=/cukiln/inc/0", "--include-path=/cukiln/toolkit"}, {}};
  CHECK(include_folders_of(options) ==
        std::vector<std::string>{"/cukiln/inc/0", "/cukiln/toolkit"});
  const CompileOptions program{{"-I/a", "-Ib", "-I=/c", "-I", "/d", "--include-path=/e"}, {}};
  CHECK(include_folders_of(program) == std::vector<std::string>{"/a", "/c", "/e"});
}

TEST_CASE("the scanner reads no text beyond its end") {
  for (const char* text : {"", "#", "#include", "#include ", "#include <", "#include \"x", "# ",
                           "#ifndef", "#ifndef A", "#ifndef A\n", "#ifndef A\n#",
                           "#ifndef A\n#define", "/*", "/", "/*\n#include \"x\"", "\"/*", "#/*"}) {
    CHECK(includes_in(text).empty());
  }
}
