// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "remote/keys.hpp"
#include "remote/object_name.hpp"
#include "store/cubin_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Larger is refused before anything is allocated for it.
inline constexpr std::uint64_t kMaxEnvelopeBytes = 64ull << 20;
inline constexpr std::uint64_t kMaxPayloadBytes = 256ull << 20;

/// Why an object from elsewhere is not used. The names are the label of a metric.
enum class Rejection {
  none,
  oversize,        ///< larger than the limits, or than it says
  malformed,       ///< no envelope, or cut off
  version,         ///< an envelope of another version
  wrong_name,      ///< a good object at another object's place
  no_signature,    ///< not signed at all
  unknown_signer,  ///< signed by a key that is not trusted
  revoked_signer,  ///< by one that is no longer
  bad_signature,   ///< not what the signer signed
  bad_hash,        ///< the bytes are not those that were signed for
  bad_payload,     ///< signed, and still not what it should be
  wrong_image      ///< no cubin, or one for another target
};
inline constexpr int kRejections = static_cast<int>(Rejection::wrong_image) + 1;
const char* name_of(Rejection rejection) noexcept;

/// CKE2: one object as it lies in a remote store or a bundle, compressed and signed. The signature
/// covers the whole header, and so the object's own name: a good object is of no use at another's
/// place. cache/FORMAT.md, "Envelope".
struct EnvelopeHead {
  ObjectName name;
  std::uint64_t raw_bytes = 0;
  std::int64_t created_s = 0;
  std::string target;     ///< `sm_100a`
  std::string toolchain;  ///< `nvrtc 13.0.88`
  std::string signer;     ///< the key's name; empty: not signed
};

/// `key` may be null: not signed.
std::string seal_envelope(EnvelopeHead head, ByteView payload, const SecretKey* key);

struct OpenedEnvelope {
  EnvelopeHead head;
  std::string payload;
  std::string signer;  ///< the key that was checked, `name:base64`; empty: nobody asked
};

/// What an object is opened with. Nothing is decompressed before it is known who signed it, and
/// that every byte is what was signed.
struct OpenRules {
  const TrustedKeys* trusted = nullptr;  ///< null: whoever signed, or nobody; noted as `unsigned`
  const ObjectName* name = nullptr;      ///< the one that was asked for; null: any
  /// What no trusted key signed is taken too, and noted as `unsigned`; not what a revoked one did.
  bool insecure = false;
};

/// Errors: corrupt, with the sentence; `why` has the reason.
Result<OpenedEnvelope> open_envelope(ByteView bytes, const OpenRules& rules, Rejection& why);

/// An entry as an object, with those who signed it before. A remote's readers have the source:
/// `with_source` is for bundles.
std::string seal_entry(const StoreEntry& entry, const SecretKey* key, bool with_source);
/// Checks that the payload is the entry that the name says, and everything that a store checks.
/// Its `signer` is all who signed it, the last one now; one of them that was revoked is a
/// Rejection::revoked_signer. Origin is left to the caller. Errors: as open_envelope.
Result<StoreEntry> open_entry(ByteView bytes, const OpenRules& rules, Rejection& why);

/// What the fleet recorded for a request: the tree leads to the entry that may hold. Of the
/// youngest entries the sets lie beside it, so that most are known to hold before they are fetched.
struct FleetSets {
  SetTree tree;
  std::vector<RecordedSet> recent;  ///< the youngest first

  /// The set of a key; null: it is not among the youngest.
  const DependencySet* find(const CacheKey& key) const noexcept;
  /// Adds an entry, or makes it the youngest. `load` as for SetTree.
  void add(const RecordedSet& set, const SetTree::Load& load);
};

/// Reading the sets of a request costs no look-up more than this.
inline constexpr std::size_t kMaxSetsObjectBytes = 64 << 10;
inline constexpr std::size_t kMaxFleetSets = 512;

/// As an object of at most kMaxSetsObjectBytes: what does not fit is left out, the oldest first.
std::string seal_sets(ByteView request_canonical, FleetSets sets, const SecretKey* key,
                      std::int64_t now_s);
Result<FleetSets> open_sets(ByteView bytes, ByteView request_canonical, const TrustedKeys* trusted,
                            Rejection& why);

}  // namespace cukiln
