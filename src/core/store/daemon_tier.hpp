// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/logger.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln {

/// The store of cukilnd, which is asked after all other tiers, and stores entries itself. A daemon
/// that is missing, hung or sends nonsense is a lookup that fails, which the tier counts itself.
class DaemonTier {
 public:
  virtual ~DaemonTier() = default;

  struct Options {
    std::vector<std::string> sockets;  ///< tried in order
    bool required = false;             ///< nothing is compiled elsewhere: no circuit breaker
    /// Whether this process has the store open itself whose folder that is. Null: it has not.
    std::function<bool(std::uint64_t device, std::uint64_t inode)> is_own_store;
    Logger log;
  };
  /// Counters since its construction.
  struct Counts {
    std::uint64_t asked = 0;     ///< conversations begun
    std::uint64_t absent = 0;    ///< no daemon was running
    std::uint64_t failed = 0;    ///< it hung, died, or was of another version or another user
    std::uint64_t declined = 0;  ///< it was busy or shutting down
  };

  /// As ObjectTier::find.
  virtual Lookup find(const RequestDigest& request, ByteView request_canonical,
                      SetCheck& check) = 0;

  /// As ObjectTier::get. Absent too if the daemon is not asked: it keeps no blobs, or has the
  /// process's own store and no remote one.
  virtual BlobLookup get(const BlobName& name) = 0;
  /// Stores a blob. `not_stored`: it is not asked, as by `get`. `already_there`: the process's own
  /// store has it now. Errors: the connection's, the daemon's.
  virtual Result<PutOutcome> put(const StoreBlob& blob) = 0;

  virtual Counts counts() const noexcept = 0;
  /// A client's counters since its last report, each once.
  using Report = std::vector<std::pair<std::string, std::uint64_t>>;
  /// Adds to a report why compiles were not the daemon's, since the last call.
  virtual void take_fallbacks(Report& report) = 0;
  /// Sends a report, which has no reply, if an idle connection takes it without blocking. False if
  /// it was not sent.
  virtual bool report(const Report& report) = 0;
  /// Sends what the process's own store would count, if that is the daemon's, so that a running
  /// process is seen there. Connects if no connection is idle. False if it was not sent.
  virtual bool report_totals(const Report& report) = 0;
};

}  // namespace cukiln
