// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cukiln::testing {

/// What a target holds to: libFuzzer keeps the input of a process that aborts. `seen` is shown.
inline void require(bool holds, const char* rule, std::string_view seen = {}) {
  if (!holds) {
    std::fprintf(stderr, "broken: %s\n%.*s\n", rule, static_cast<int>(seen.size()), seen.data());
    std::abort();
  }
}

}  // namespace cukiln::testing
