// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/cubin.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/entry_labels.hpp"
#include "core/key/set_check.hpp"
#include "core/key/set_tree.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/object_name.hpp"
#include "core/store/signers.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Where an entry came from.
enum class Origin : int { compiled = 0, imported = 1, remote = 2 };

/// The tiers of a lookup, in the order in which it goes through them.
enum class Tier : int { memory, disk, system, daemon, remote };
inline constexpr std::array<const char*, 5> kTierNames = {"memory", "disk", "system", "daemon",
                                                          "remote"};

/// Whether CUDA's headers may count as an entry recorded them (SetCheck::holds): this store
/// compiled it, or the process that compiled it signed that they were its own, or root made the
/// store.
inline bool may_trust_toolkit(Origin origin, std::string_view signer, bool of_root) noexcept {
  const bool is_own = origin == Origin::compiled && without_mark(signer).empty();
  return of_root || is_own || vouches_for_toolkit(signer);
}

/// One entry with all its bytes: the argument of `put` and the result of `get`. A failure is the
/// entry of a program that NVRTC refused (CompileRequest::failure_canonical): its image is the log.
/// Nothing but `find`, by that request, returns one: it stays in the stores of this user.
struct StoreEntry {
  CacheKey key;
  RequestDigest request;
  std::string request_canonical;
  DependencySet dependencies;
  Cubin cubin;
  EntryLabels labels;
  std::string source_text;  ///< of a `put`; `get` leaves it empty, see ObjectTier::source_text
  std::int64_t compile_us = 0;
  std::uint64_t peak_bytes = 0;  ///< memory of its compile at most; 0: not known. A `get` leaves it
                                 ///< 0, see ObjectTier::list
  std::int64_t created_s = 0;    ///< since 1970; set by the store
  std::int64_t last_used_s = 0;  ///< since 1970; set by the store
  std::int64_t hits = 0;         ///< set by the store
  Origin origin = Origin::compiled;
  std::string signer;
  bool is_failure = false;       ///< see above
  bool of_root = false;          ///< set by a system store that belongs to root
  Tier found_in = Tier::memory;  ///< set by a store of several tiers

  bool may_trust_toolkit() const noexcept {
    return cukiln::may_trust_toolkit(origin, signer, of_root);
  }
  /// Sets the request, and the key that it has with `dependencies`.
  void set_request(std::string canonical);
};

/// An entry without its cubin, log and dependency set, for inventories.
struct EntrySummary {
  CacheKey key;
  EntryLabels labels;
  std::vector<KernelInfo> kernels;
  std::uint64_t cubin_bytes = 0;
  std::size_t dependencies = 0;
  std::int64_t compile_us = 0, created_s = 0, last_used_s = 0, hits = 0;
  Origin origin = Origin::compiled;
  std::string signer;
  std::uint64_t peak_bytes = 0;  ///< memory of its compile at most; 0: not known
};

/// A recorded dependency set of a request, and the key of its entry.
struct RecordedSet {
  CacheKey key;
  DependencySet dependencies;
};

/// Entries and bytes now, and what was counted since the store was opened.
struct StoreStats {
  std::uint64_t entries = 0, bytes = 0, hits = 0, misses = 0, stored = 0, evicted = 0, corrupt = 0,
                errors = 0;
};

using StoreObject = std::variant<StoreEntry, StoreBlob>;

/// The result of a lookup is three-valued: an entry, absent (an empty optional), or an error. An
/// error means that the tier could not answer; callers treat it as a miss.
using Lookup = Result<std::optional<StoreEntry>>;
using BlobLookup = Result<std::optional<StoreBlob>>;

enum class PutOutcome {
  stored,
  already_there,
  too_large,  ///< larger than the store's cap
  not_stored  ///< the store cannot be written
};

/// Keeps entries and blobs under their names: one tier, or several in order. Entries are found by
/// their requests too. Threads: every member is safe from any thread. One contract suite
/// (tests/core/store/contract.hpp) runs on every implementation.
class ObjectTier {
 public:
  virtual ~ObjectTier() = default;

  virtual const char* tier_name() const noexcept = 0;  ///< `memory`, `disk`, `system`

  enum class Purpose {
    use,     ///< counts as a use; removes damage
    inspect  ///< does not count as a use; leaves damage in place
  };
  /// Returns the entry of the request whose recorded set holds according to `check`. The cost does
  /// not grow with the number of sets.
  virtual Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                      Purpose purpose) = 0;

  /// Returns the tree of the request's sets, for callers that cannot check files themselves. It is
  /// empty if no set is recorded.
  virtual Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) = 0;

  /// Returns all sets recorded for a request, the youngest first. Reads each of them, so it is for
  /// inspection only. Leaves out rows that are damaged or belong to another request.
  virtual Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                                     ByteView request_canonical) = 0;

  /// Returns an object after a full check of checksum and name, and of an entry's image. A damaged
  /// object is removed, counted and reported absent. Leaves the source text of an entry empty, see
  /// `source_text`. A tier need not keep blobs: those of another process replace them.
  virtual Lookup get(const CacheKey& key) = 0;
  virtual BlobLookup get(const BlobName& /*name*/) { return std::optional<StoreBlob>(); }

  /// Like `get`, but does not count as a use, and reports damage (corrupt) instead of removing the
  /// object.
  virtual Lookup peek(const CacheKey& key) = 0;
  virtual BlobLookup peek(const BlobId& /*id*/) { return std::optional<StoreBlob>(); }

  /// Stores an entry; a key that is stored already returns already_there. Errors: io, timeout;
  /// invalid_argument if key, request, set and image do not belong together.
  virtual Result<PutOutcome> put(const StoreEntry& entry) = 0;
  /// Stores a blob, and replaces the one of its name. Errors: io, timeout; invalid_argument (larger
  /// than the store's cap).
  virtual Result<PutOutcome> put(const StoreBlob& /*blob*/) { return PutOutcome::not_stored; }

  /// Caches in memory an entry that another tier stores already. Does nothing where there is no
  /// memory tier.
  virtual void cache_in_memory(const StoreEntry& entry) { static_cast<void>(entry); }

  virtual Result<bool> remove(const ObjectName& name) = 0;  ///< false if there was no such object
  virtual Result<std::vector<EntrySummary>> list() = 0;
  /// Lists the blobs of a kind; of every kind, if it is empty.
  virtual Result<std::vector<BlobSummary>> list_blobs(ByteView /*kind*/) {
    return std::vector<BlobSummary>();
  }
  virtual StoreStats stats() = 0;  ///< of entries

  /// Returns the memory that the last compile of a request used; 0 if it is not known.
  virtual std::uint64_t peak_bytes(const RequestDigest& request) {
    static_cast<void>(request);
    return 0;
  }

  /// Returns the sources as they were compiled; empty if none were stored. Errors: not_found (no
  /// such entry), corrupt.
  virtual Result<std::string> source_text(const CacheKey& key) = 0;
};

/// Returns the entry of a request whose set holds according to `check`: the one way from a request
/// to an entry, for every tier that has sets. `read` gets the entry of a set; what it returns
/// absent is passed over.
Lookup find_in_sets(const SetTree& sets, ByteView request_canonical, SetCheck& check,
                    const std::function<Lookup(const SetTree::Leaf& leaf)>& read);

/// Removes entries and blobs that were signed by a key that has been revoked since, and returns
/// their number. Costs nothing if no key is revoked. Errors: the tier's.
Result<std::uint64_t> remove_revoked(ObjectTier& tier, const RevokedKeys& keys);

}  // namespace cukiln
