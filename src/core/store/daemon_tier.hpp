// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/store/blob_name.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

/// The store of cukilnd, which is asked after all other tiers. A daemon that is missing, hung or
/// sends nonsense is a lookup that fails, which the tier counts itself.
class DaemonTier : public CubinStore {
 public:
  const char* tier_name() const noexcept override { return "daemon"; }

  /// Gets a blob. Nothing if the daemon has none, or is not asked: it keeps no blobs, or has the
  /// process's own store and no remote one. Errors: the connection's, the daemon's.
  virtual Result<std::optional<SharedBytes>> get_blob(const BlobName& name) = 0;

  enum class BlobPut {
    not_asked,  ///< as by `get_blob`
    stored,
    stored_in_own  ///< the process's own store has it now
  };
  /// Stores a blob. Errors: the connection's, the daemon's.
  virtual Result<BlobPut> put_blob(const BlobName& name, ByteView bytes) = 0;
};

}  // namespace cukiln
