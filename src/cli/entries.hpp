// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/context.hpp"
#include "core/loader/entry_json.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln::cli {

inline constexpr std::size_t kMinKeyDigits = 6;
inline constexpr std::size_t kShownKeyDigits = 12;

/// Returns whether `text` may be a prefix of a key: 6 to 64 hex digits.
bool looks_like_key(const std::string& text) noexcept;

/// Finds the entry whose key begins with `text`. Errors: invalid_argument (not a prefix of a key,
/// or one of several keys), not_found.
Result<CacheKey> find_key(const std::vector<EntrySummary>& entries, const std::string& text);

/// Finds the entry whose key begins with `text`, else the entries of the modules whose names match
/// it, with * and ?. Never returns an empty list. Errors: as find_key.
Result<std::vector<EntrySummary>> find_entries(const std::vector<EntrySummary>& entries,
                                               const std::string& text);

/// True for a compiled source of a linked module, which is an entry of its own.
bool is_part(const EntrySummary& entry);

/// Finds the blob whose id begins with `text`; nothing if there is none. Errors: invalid_argument
/// (one of several).
Result<std::optional<BlobSummary>> find_blob(const std::vector<BlobSummary>& blobs,
                                             const std::string& text);
/// Returns the rows of `show` for the signers of an entry or a blob, the first signer first.
std::vector<std::pair<const char*, std::string>> signer_rows(const std::string& signers);
/// Returns a blob's key as text, or as hex digits after `0x` if it is none.
std::string key_text(const BlobSummary& blob);
Json blob_json(const BlobSummary& blob);

/// The options `--arch` and `--name`, which choose entries.
class EntryFilter {
 public:
  void add_to(CLI::App& app);
  bool empty() const noexcept { return arch_.empty() && name_.empty(); }
  bool has_arch() const noexcept { return !arch_.empty(); }
  /// True if `--name` is not given, or matches.
  bool names(const std::string& name) const;
  /// Returns the entries that match. Errors: invalid_argument, for an unknown target.
  Result<std::vector<EntrySummary>> apply(std::vector<EntrySummary> entries) const;

 private:
  std::vector<std::string> arch_;
  std::string name_;
};

/// Returns an entry with its source text. Errors: not_found (removed meanwhile), corrupt.
Result<StoreEntry> whole_entry(StoreAdmin& store, const CacheKey& key);

/// Returns the exit code for an error of `find_key`. An unknown key is not an error of usage.
Exit exit_of_key_error(const Error& error) noexcept;

/// Returns the end of an error about an entry that is not in a store with this many.
std::string where_to_look(std::size_t entries);

/// Returns the digits of a key that tables show.
std::string short_key(const CacheKey& key);
std::string short_key(const BlobId& id);
/// Returns the wall clock's seconds since 1970.
std::int64_t now_s();

}  // namespace cukiln::cli
