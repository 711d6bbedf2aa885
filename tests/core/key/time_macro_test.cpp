// SPDX-License-Identifier: Apache-2.0
#include "core/key/time_macro.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace cukiln;

TEST_CASE("each date macro is found and named") {
  CHECK(find_time_macro("const char* t = __TIME__;") == "__TIME__");
  CHECK(find_time_macro("__DATE__") == "__DATE__");
  CHECK(find_time_macro("x __TIMESTAMP__") == "__TIMESTAMP__");
  CHECK(find_time_macro("// __TIME_\n__TIMES__ __DATE_ __DATES __TIMESTAMP_ TIME__").empty());
  CHECK(find_time_macro("").empty());
  CHECK(find_time_macro({}).empty());
  CHECK(find_time_macro("_").empty());
}

// fault 82
TEST_CASE("a name that line splices or trigraphs divide is found") {
  for (const char* text : {
           "__TI\\\nME__",
           "__TI\\\r\nME__",
           "__TI\\ \t\nME__",
           "__TI\\\n\\\nME__",
           "__TI?\?/\nME__",
           "__TI?\?/\r\nME__",
           "__TI?\?/\n\\\nME__",
           "__TI\\\n?\?/\nME__",
           "_\\\n_\\\nT\\\nI\\\nM\\\nE\\\n_\\\n_",
           "#define A \\\n  b \\\n  c\n#define B __TIM\\\nE__\n",
       }) {
    CAPTURE(text);
    CHECK(find_time_macro(text) == "__TIME__");
  }
  CHECK(find_time_macro("__DA\\\nTE__") == "__DATE__");
  CHECK(find_time_macro("__TIMESTA?\?/\nMP__") == "__TIMESTAMP__");
}

TEST_CASE("characters that are not a line splice do not join a name") {
  for (const char* text : {"__TI\\ME__", "__TI\\\n ME__", "__TI \\\nME__", "__TI\nME__",
                           "__TI?/\nME__", "__TI?\?/ME__", "__TI##ME__", "\\\n__TI", "__TI\\",
                           "__TI\\\n", "__TI?\?/", "?\?/\n", "\\", "__TI\\  "}) {
    CAPTURE(text);
    CHECK(find_time_macro(text).empty());
  }
}
