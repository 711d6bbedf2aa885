// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.hpp"

#include <doctest/doctest.h>

using cukiln::printable;
using cukiln::printable_lines;

// fault 166
TEST_CASE("text that could change a terminal or forge a line is escaped") {
  CHECK(printable("a\x1b[2J\n\t\r\x7f") == "a\\x1b[2J\\n\\t\\r\\x7f");
  CHECK(printable("\xe2\x80\xae"
                  "b") == "\\u202eb");
  CHECK(printable("\xff\xc0\x80") == "\\xff\\xc0\\x80");
  CHECK(printable("über 漢") == "über 漢");
  CHECK(printable_lines("a\n\tb\r\nc\x1b") == "a\n\tb\nc\\x1b");
}
