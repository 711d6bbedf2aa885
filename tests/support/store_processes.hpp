// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/store/sqlite_store.hpp"
#include "support/child.hpp"
#include "support/paths.hpp"
#include "support/sanitized.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// Starts `store_worker DIRECTORY COMMAND OPTION…`.
inline Child start_worker(const std::string& directory, const std::string& command,
                          std::vector<std::string> options = {},
                          const std::vector<std::string>& environment = {}) {
  std::vector<std::string> words = {bin() + "/store_worker", directory, command};
  words.insert(words.end(), options.begin(), options.end());
  return Child(words, environment);
}

/// Runs `store_worker` to its end. Returns the lines that it printed.
inline std::vector<std::string> run_worker(const std::string& directory, const std::string& command,
                                           std::vector<std::string> options = {},
                                           const std::vector<std::string>& environment = {}) {
  Child child = start_worker(directory, command, std::move(options), environment);
  child.go();
  std::vector<std::string> lines = child.lines();
  const int status = child.wait();
  CHECK_MESSAGE(status == 0, "the worker ended with ", status);
  return lines;
}

/// Returns an environment in which a system call fails on files whose path contains `match`.
inline std::vector<std::string> faults(const std::string& call, const std::string& match, int error,
                                       std::uint64_t bytes = 0) {
  return {"LD_PRELOAD=" + bin() + "/libfaulty_calls.so", "FAULT_CALL=" + call,
          "FAULT_MATCH=" + match, "FAULT_ERRNO=" + std::to_string(error),
          "FAULT_BYTES=" + std::to_string(bytes)};
}

inline bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

inline std::size_t count_lines(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(),
                    [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

/// Returns the numbers of the entries that a worker reported as stored.
inline std::vector<std::uint64_t> acknowledged(const std::vector<std::string>& lines) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& line : lines) {
    if (starts_with(line, "put ") && line.find(" stored") != std::string::npos) {
      numbers.push_back(std::strtoull(line.c_str() + 4, nullptr, 10));
    }
  }
  return numbers;
}

/// Opens the store in this process and returns how many of the entries it has. An entry that
/// differs from what was put, or any damage, fails the test.
inline std::size_t count_intact(const std::string& directory,
                                const std::vector<std::uint64_t>& numbers, std::size_t bytes) {
  SqliteStoreOptions options;
  options.directory = directory;
  auto store = SqliteStore::open(options);
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  std::size_t intact = 0;
  for (const std::uint64_t number : numbers) {
    const StoreEntry entry = make_entry(number, {bytes});
    const auto found = (*store)->get(entry.key);
    REQUIRE_MESSAGE(found.has_value(), found.error().message());
    if (*found) {
      REQUIRE(same_content(**found, entry));
      ++intact;
    }
  }
  const auto report = (*store)->verify(false);
  REQUIRE(report);
  CHECK(report->damaged == 0);
  CHECK((*store)->session().rebuilds() == 0);
  return intact;
}

}  // namespace cukiln::testing
