// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cukiln::testing {

/// Aborts if the rule is broken, after printing it and `seen`. libFuzzer then keeps the input.
inline void require(bool holds, const char* rule, std::string_view seen = {}) {
  if (!holds) {
    std::fprintf(stderr, "broken: %s\n%.*s\n", rule, static_cast<int>(seen.size()), seen.data());
    std::abort();
  }
}

}  // namespace cukiln::testing
