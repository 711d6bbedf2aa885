// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace cukiln {

/// Runs `work(i)` for i < count on up to `threads` threads, the calling one included. The others
/// have ended when it returns.
inline void run_parallel(std::size_t count, std::size_t threads,
                         const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto body = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      work(i);
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t t = 1; t < std::min(threads, count); ++t) {
      helpers.emplace_back(body);
    }
  } catch (const std::exception&) {  // no more threads: continue with those there are
  }
  body();
}

}  // namespace cukiln
