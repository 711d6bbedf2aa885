#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <cukiln/digest.hpp>

namespace cukiln {

/// What reading every entry found.
struct VerifyReport {
  std::uint64_t checked = 0;
  std::uint64_t damaged = 0;
  std::uint64_t repaired = 0;  ///< damaged ones removed; they are compiled again when asked for
  struct Finding {
    CacheKey key;  ///< all zero: the database's own structure
    std::string what;
  };
  std::vector<Finding> findings;
};

struct GcOptions {
  std::optional<std::uint64_t> max_bytes;  ///< evict until the live data is at most this
  std::optional<std::int64_t> max_age_s;   ///< evict what was not used for this long
  bool dry_run = false;                    ///< only say what would go
};

struct GcReport {
  std::uint64_t entries = 0;       ///< evicted
  std::uint64_t bytes = 0;         ///< of their data
  std::uint64_t bytes_before = 0;  ///< of the database's files
  std::uint64_t bytes_after = 0;
  bool already_running = false;  ///< another process collects: nothing was done
};

}  // namespace cukiln
