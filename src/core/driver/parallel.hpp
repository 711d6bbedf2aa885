// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/result.hpp"

namespace cukiln {

/// Runs `body(0)` … `body(count - 1)`, each of which returns a Result<void>, in parallel: the first
/// in the calling thread, the others in threads that are joined before it returns. Returns the
/// error of the lowest index, if there is one.
template <class Body>
Result<void> in_parallel(std::size_t count, const Body& body) {
  std::vector<Result<void>> results(count);
  const auto run = [&](std::size_t index) noexcept {
    results[index] = guarded([&] { return body(index); });
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(count);
    for (std::size_t i = 1; i < count; ++i) {
      try {
        threads.emplace_back(run, i);
      } catch (const std::system_error&) {  // no thread available: run it here
        run(i);
      }
    }
    if (count != 0) {
      run(0);
    }
  }
  for (Result<void>& result : results) {
    CUKILN_CHECK(std::move(result));
  }
  return {};
}

}  // namespace cukiln
