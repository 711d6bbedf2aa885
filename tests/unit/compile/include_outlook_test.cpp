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

TEST_CASE("no text makes the outlook read beyond its end") {
  for (const char* text : {"", "#", "#include", "#include ", "#include <", "#include \"x", "# "}) {
    CHECK(includes_in(text).empty());
  }
}
