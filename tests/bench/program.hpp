// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace cukiln::bench {

/// What a program that cannot measure says, and its exit code.
inline int fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return 3;
}

inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace cukiln::bench
