// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/blob_name.hpp"
#include "store/cubin_store.hpp"
#include "wire/daemon_link.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln {

/// The store of cukilnd, over its socket. Cubins arrive as sealed files in memory, which are mapped
/// and never copied. Read-only: the daemon stores what it compiles itself. If the daemon is
/// missing, hung or sends nonsense, the lookup fails, and the link counts it.
class DaemonStore final : public CubinStore {
 public:
  /// Whether this process has the store of the daemon open itself.
  using IsOwnStore = std::function<bool(const wire::Greeting&)>;
  DaemonStore(std::shared_ptr<wire::DaemonLink> link, IsOwnStore is_own)
      : link_(std::move(link)), is_own_(std::move(is_own)) {}

  const char* tier_name() const noexcept override { return "daemon"; }
  /// Asks nothing if the daemon's store is the process's own, which was looked up before.
  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override;
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override;
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView request_canonical) override;
  Lookup get(const CacheKey& key) override;
  Lookup peek(const CacheKey& key) override { return get(key); }
  Result<PutOutcome> put(const StoreEntry& /*entry*/) override { return PutOutcome::not_stored; }
  Result<bool> remove(const CacheKey& /*key*/) override { return false; }
  Result<std::vector<EntrySummary>> list() override { return std::vector<EntrySummary>(); }
  StoreStats stats() override { return {}; }
  Result<std::string> source_text(const CacheKey& key) override;

  /// Gets a blob. Nothing if the daemon has none, or is not asked: it keeps no blobs, or has the
  /// process's own store and no remote one. Errors: the link's, the daemon's.
  Result<std::optional<std::string>> get_blob(const BlobName& name);
  enum class BlobPut {
    not_asked,  ///< as by `get_blob`
    stored,
    stored_in_own  ///< the process's own store has it now
  };
  /// Stores a blob, as a sealed file in memory. Errors: the link's, the daemon's.
  Result<BlobPut> put_blob(const BlobName& name, ByteView bytes);

 private:
  Result<SetTree> ask_sets(wire::DaemonLink::Conversation conversation,
                           const RequestDigest& request, ByteView request_canonical);
  /// Converts an answer that is not the expected one to an error: a refusal, or else a protocol
  /// error, which the link counts.
  static Error error_of(wire::DaemonLink::Conversation& conversation, wire::DaemonFrame& answer,
                        const char* about);

  const std::shared_ptr<wire::DaemonLink> link_;
  const IsOwnStore is_own_;
};

/// Convert an entry to its message and back. `from_wire` returns nothing if set or kernels do not
/// parse, or the key is not that of the request and the set.
wire::EntryBody to_wire(const StoreEntry& entry);
std::optional<StoreEntry> from_wire(wire::EntryBody body);

}  // namespace cukiln
