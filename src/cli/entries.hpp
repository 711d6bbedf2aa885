// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/context.hpp"
#include "loader/entry_json.hpp"
#include "store/store_admin.hpp"

namespace cukiln::cli {

inline constexpr std::size_t kMinKeyDigits = 6;
inline constexpr std::size_t kShownKeyDigits = 12;

/// Whether a text can be the beginning of a key: 6 to 64 hex digits.
bool looks_like_key(const std::string& text) noexcept;

/// The one entry whose key begins with `text`. Errors: invalid_argument (no key, or the beginning
/// of several), not_found.
Result<CacheKey> find_key(const std::vector<EntrySummary>& entries, const std::string& text);

/// The entries that `text` means: the one whose key begins with it, or else all of the module of
/// that name, with * and ?. Errors: as find_key.
Result<std::vector<EntrySummary>> find_entries(const std::vector<EntrySummary>& entries,
                                               const std::string& text);

/// `--arch` and `--name`: some of the entries.
class EntryFilter {
 public:
  void add_to(CLI::App& app);
  bool empty() const noexcept { return arch_.empty() && name_.empty(); }
  /// Errors: invalid_argument, a target.
  Result<std::vector<EntrySummary>> of(std::vector<EntrySummary> entries) const;

 private:
  std::vector<std::string> arch_;
  std::string name_;
};

/// How an error of `find_key` ends a command: a key that is not there is no mistake in the command
/// line.
Exit exit_of_key_error(const Error& error) noexcept;

std::string short_key(const CacheKey& key);
std::int64_t now_s();

}  // namespace cukiln::cli
