// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "addons/fleet/envelope.hpp"
#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_tier.hpp"

namespace cukiln {

/// Bounds what an explanation reads of a module.
inline constexpr std::size_t kMaxIndexObjectBytes = 64 << 10;
inline constexpr std::size_t kMaxIndexedRequests = 16;

/// The last requests of one module name and target whose entries were uploaded, so that a machine
/// whose own request is another one can say what differs. Only `explain` reads it: no lookup
/// depends on it.
struct ModuleIndex {
  struct Row {
    CacheKey key;  ///< of the request's last entry
    std::int64_t uploaded_s = 0;
    std::string canonical;
  };
  std::vector<Row> rows;  ///< the last uploaded first

  static ObjectName name_of(std::string_view module, Target target);
  /// Puts a request first. Keeps kMaxIndexedRequests of them.
  void add(Row row);
  const Row* find(ByteView canonical) const noexcept;  ///< null if it is not among them
};

/// Encodes an index as an object of at most kMaxIndexObjectBytes; leaves out the oldest rows if
/// they do not fit. Empty if none fits.
std::string seal_index(std::string_view module, Target target, ModuleIndex index,
                       const SecretKey* key, std::int64_t now_s);
/// Verifies an object and decodes the index in it. Its signer must be trusted for the module.
/// Errors: as open_envelope.
Result<ModuleIndex> open_index(ByteView bytes, std::string_view module, Target target,
                               const OpenRules& rules, Rejection& why);

/// Adds the request of an entry that a server has now to the index of its module there; a blob has
/// none. An index that cannot be opened is replaced. Of two machines that do so concurrently one
/// may lose its row. A failure is no failure of the upload.
void index_request(RemoteServer& server, const StoreObject& object,
                   const RemoteStoreOptions& options, SteadyTime deadline);

/// As RemoteTier::describe.
RemoteRecord describe_request(const std::vector<std::unique_ptr<RemoteServer>>& servers,
                              ByteView request_canonical, std::string_view module, SetCheck& check,
                              const RemoteStoreOptions& options);

}  // namespace cukiln
