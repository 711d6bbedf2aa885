// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

// The table `compile_peak`: how much memory the compile of an entry used.

struct PeakRows {
  std::unordered_map<CacheKey, std::uint64_t> peaks;
  std::vector<std::string> damaged;  ///< keys as they are in the rows
};

/// Reads all rows.
Result<PeakRows> read_peaks(SqliteHandle& db);

/// The highest peak of a request's entries; 0 if none is known.
Result<std::uint64_t> read_peak(SqliteHandle& db, const RequestDigest& request);

/// Writes the row of an entry, in a transaction.
Result<void> write_peak(SqliteHandle& db, const CacheKey& key, std::uint64_t peak_bytes);

}  // namespace cukiln
