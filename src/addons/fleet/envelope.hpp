// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "addons/fleet/keys.hpp"
#include "core/base/bytes.hpp"
#include "core/base/clock.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/object_name.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Larger objects are refused before anything is allocated for them. A remote store has no larger
/// ones; the limit of blobs is for bundles.
inline constexpr std::uint64_t kMaxEnvelopeBytes = 64ull << 20;
inline constexpr std::uint64_t kMaxPayloadBytes = 256ull << 20;
inline constexpr std::uint64_t kMaxSealedBlobBytes = kMaxBlobBytes + (64 << 10);  ///< also unpacked

/// Why an object of a remote store or a bundle is rejected. The names are the label of a metric.
enum class Rejection {
  none,
  oversize,        ///< larger than the limits or than its header says
  malformed,       ///< not an envelope, or truncated
  version,         ///< an envelope of another format
  wrong_name,      ///< a valid object under another object's name
  no_signature,    ///< not signed
  unknown_signer,  ///< signed by a key that is not trusted
  revoked_signer,  ///< signed by a key that was revoked
  expired_signer,  ///< signed by a key whose expiry has passed
  out_of_scope,    ///< signed by a key that is not trusted for the module, or for blobs
  bad_signature,   ///< the signature does not match the header
  bad_hash,        ///< the content does not match the signed hash
  bad_payload,     ///< signed, but the payload is malformed
  wrong_image      ///< not a cubin, or one for another target
};
inline constexpr int kRejections = static_cast<int>(Rejection::wrong_image) + 1;
const char* name_of(Rejection rejection) noexcept;

/// The header of an envelope (CKE6), which is an object as stored in a remote store or a bundle:
/// compressed and signed. The signature covers the whole header, the object's name included, so
/// that a valid object cannot be served under another name. See cache/FORMAT.md, "Envelope".
struct EnvelopeHead {
  ObjectName name;
  std::uint64_t raw_bytes = 0;
  std::int64_t created_s = 0;
  std::string target;     ///< `sm_100a`
  std::string toolchain;  ///< `nvrtc 13.0.88`
  std::string signer;     ///< the key's name; empty if not signed
};

/// Compresses and signs an object. If `key` is null, it is not signed.
std::string seal_envelope(EnvelopeHead head, ByteView payload, const SecretKey* key);

/// The content of a verified object.
struct OpenedEnvelope {
  EnvelopeHead head;
  std::string payload;
  std::string signer;  ///< the verified key, `name:base64`; empty if none was verified
};

/// The conditions under which an object is accepted.
struct OpenRules {
  const TrustedKeys* trusted = nullptr;  ///< null if signatures are not checked
  const ObjectName* name = nullptr;      ///< the expected name; null if any is
  /// Accept objects that no trusted key signed, as `unsigned`; never those of a revoked key, or of
  /// a key that is not trusted for the module.
  bool insecure = false;
  const Clock* clock = &Clock::system();  ///< for the expiry of keys
  /// What the caller calls the module of an entry: the signers must be trusted for this name too,
  /// because the name in the entry is their word. Empty: the caller asked for no module.
  std::optional<std::string_view> module = {};
};

/// Verifies and unpacks an object. Decompresses nothing before it has verified the signature and
/// the hash of all bytes. Errors: corrupt; `why` is set to the reason.
Result<OpenedEnvelope> open_envelope(ByteView bytes, const OpenRules& rules, Rejection& why);

/// Encodes an entry as an object, with the list of its earlier signers. `with_source` includes the
/// source text; for bundles only, because the readers of a remote store have the source.
std::string seal_entry(const StoreEntry& entry, const SecretKey* key, bool with_source);
/// Verifies that the payload is the entry that its name states, with all checks of a store. The
/// entry's `signer` lists all signers, this object's last; if one of them was revoked, it is
/// rejected as revoked_signer. Each must be trusted for the entry's module. The caller sets
/// the origin. Errors: as open_envelope.
Result<StoreEntry> open_entry(ByteView bytes, const OpenRules& rules, Rejection& why);

/// Encodes a blob as an object.
std::string seal_blob(const StoreBlob& blob, const SecretKey* key);
/// Verifies that the payload is the blob that its name states. Its `signer` lists all signers, as
/// that of an entry. A blob is of no module, so that each of them must be trusted for all modules.
/// Errors: as open_envelope.
Result<StoreBlob> open_blob(ByteView bytes, const OpenRules& rules, Rejection& why);

/// Returns the signers of an entry, `chain` and the verified one (empty: none) that passed it on;
/// of a blob, if `module` is empty.
/// Errors: corrupt, with `why` revoked_signer or out_of_scope, as open_entry.
Result<std::string> accept_signers(std::string_view chain, const std::string& verified,
                                   std::string_view module, const OpenRules& rules, Rejection& why);

/// The dependency sets that the fleet recorded for a request: the tree of all of them, and the most
/// recent sets themselves, so that most entries are known to hold before they are fetched.
struct FleetSets {
  SetTree tree;
  std::vector<RecordedSet> recent;  ///< the most recent first

  /// Returns the set of a key; null if it is not among the most recent.
  const DependencySet* find(const CacheKey& key) const noexcept;
  /// Adds an entry, or makes it the most recent. `load` as for SetTree::insert.
  void add(const RecordedSet& set, const SetTree::Load& load);
};

/// Bounds what a lookup reads for the sets of a request.
inline constexpr std::size_t kMaxSetsObjectBytes = 64 << 10;
inline constexpr std::size_t kMaxFleetSets = 512;

/// Encodes the sets as an object of at most kMaxSetsObjectBytes. Leaves out the oldest if they do
/// not fit.
std::string seal_sets(ByteView request_canonical, FleetSets sets, const SecretKey* key,
                      std::int64_t now_s);
/// Verifies an object and decodes the sets in it. Its signer may have any scope: it can hide
/// entries, as each writer of the store can, and each entry's own signers are checked. Errors: as
/// open_envelope.
Result<FleetSets> open_sets(ByteView bytes, ByteView request_canonical, const TrustedKeys* trusted,
                            Rejection& why, const Clock& clock = Clock::system());

}  // namespace cukiln
