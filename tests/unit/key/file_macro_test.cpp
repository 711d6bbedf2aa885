// SPDX-License-Identifier: Apache-2.0
#include "key/file_macro.hpp"

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
