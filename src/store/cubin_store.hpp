// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "key/cubin.hpp"
#include "key/dependency_set.hpp"
#include "key/entry_labels.hpp"
#include "key/set_check.hpp"
#include "key/set_tree.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Where an entry came from.
enum class Origin : int { compiled = 0, imported = 1, remote = 2 };

/// The places that a look-up goes through, one after the other.
enum class Tier : int { memory, disk, system, daemon, remote };
inline constexpr std::array<const char*, 5> kTierNames = {"memory", "disk", "system", "daemon",
                                                          "remote"};

/// One entry, whole: what `put` takes and `get` gives.
struct StoreEntry {
  CacheKey key;
  RequestDigest request;
  std::string request_canonical;
  DependencySet dependencies;
  Cubin cubin;
  EntryLabels labels;
  std::string source_text;  ///< for `show --source`; a hit does not pay for it: `source_text()`
  std::int64_t compile_us = 0;
  std::int64_t created_s = 0;    ///< by the store
  std::int64_t last_used_s = 0;  ///< by the store
  std::int64_t hits = 0;         ///< by the store
  Origin origin = Origin::compiled;
  std::string signer;
  Tier found_in = Tier::memory;  ///< by a store of several tiers
};

/// The same without the bytes, for inventories.
struct EntrySummary {
  CacheKey key;
  EntryLabels labels;
  std::vector<KernelInfo> kernels;
  std::uint64_t cubin_bytes = 0;
  std::size_t dependencies = 0;
  std::int64_t compile_us = 0, created_s = 0, last_used_s = 0, hits = 0;
  Origin origin = Origin::compiled;
  std::string signer;
};

/// A recorded dependency set of a request and the entry it leads to.
struct RecordedSet {
  CacheKey key;
  DependencySet dependencies;
};

struct StoreStats {
  std::uint64_t entries = 0, bytes = 0, hits = 0, misses = 0, stored = 0, evicted = 0, corrupt = 0,
                errors = 0;
};

/// The outcome of a get is three-valued: an entry (has_value, engaged), absent (has_value, empty),
/// or failed (an error: the tier could not answer; the caller treats it as a miss and goes on).
using Lookup = Result<std::optional<StoreEntry>>;

enum class PutOutcome { stored, already_there, too_large, not_stored };

/// A place that keeps cubins. Threads: every member is safe from any thread.
/// One contract suite (tests/unit/store/contract.hpp) runs on every implementation.
class CubinStore {
 public:
  virtual ~CubinStore() = default;

  virtual const char* tier_name() const noexcept = 0;  ///< `memory`, `disk`, `system`

  /// The entry of the request whose recorded set holds, as `check` says. Finding it among hundreds
  /// costs what finding it among one costs.
  enum class Purpose {
    use,     ///< counts as a use; damage is removed
    inspect  ///< somebody only wants to know: no use, and damage stays where it is
  };
  virtual Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                      Purpose purpose) = 0;

  /// What a SetTree of this request's sets looks like here, for who has no files to check; empty:
  /// nothing is recorded.
  virtual Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) = 0;

  /// All sets recorded for a request, the youngest first, for people: it reads every one. Rows that
  /// are damaged, or of another request, are left out.
  virtual Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                                     ByteView request_canonical) = 0;

  /// Checked in full (checksum, key, image) before it is handed out; a damaged one is removed,
  /// counted and reported absent. The source text is left empty: `source_text()` has it.
  virtual Lookup get(const CacheKey& key) = 0;

  /// Like `get`, for people who look: it is no use of the entry, and damage is an error (corrupt)
  /// and stays where it is.
  virtual Lookup peek(const CacheKey& key) = 0;

  /// Keeps an entry; the same key again is already_there. Errors: io, timeout.
  virtual Result<PutOutcome> put(const StoreEntry& entry) = 0;

  /// Caches in memory an entry that another tier stores already. Does nothing where there is no
  /// memory tier.
  virtual void cache_in_memory(const StoreEntry& entry) { static_cast<void>(entry); }

  virtual Result<bool> remove(const CacheKey& key) = 0;  ///< false: was not there
  virtual Result<std::vector<EntrySummary>> list() = 0;
  virtual StoreStats stats() = 0;

  /// The first source as it was compiled. Errors: not_found (no such entry), corrupt.
  virtual Result<std::string> source_text(const CacheKey& key) = 0;
};

}  // namespace cukiln
