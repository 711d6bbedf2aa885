#include "compile/include_outlook.hpp"

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

TEST_CASE("an include behind a condition is left to be asked for, one behind a guard is not") {
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

TEST_CASE("an include in a comment's example is none") {
  CHECK(includes_in("//! #include <a>\n * #include <b>\n").empty());
}

TEST_CASE("no text makes the outlook read beyond its end") {
  for (const char* text :
       {"", "#", "#include", "#include ", "#include <", "#include \"x", "# ", "#ifndef",
        "#ifndef A", "#ifndef A\n", "#ifndef A\n#", "#ifndef A\n#define"}) {
    CHECK(includes_in(text).empty());
  }
}
