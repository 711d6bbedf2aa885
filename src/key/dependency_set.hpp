#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// What a compile observed besides its sources: virtual paths that were read, with the digest of
/// the very bytes that were served; folders that were found; virtual paths that were probed in
/// vain. Each list sorted by path and unique.
struct DependencySet {
  struct Present {
    std::string path;
    Digest128 digest;
    friend bool operator==(const Present&, const Present&) = default;
  };
  std::vector<Present> present;
  std::vector<std::string> folders;  ///< existing directories that were probed
  std::vector<std::string> absent;

  void sort();
  std::string canonical() const;
  static Result<DependencySet> parse(ByteView canonical);

  /// False when a path outside the virtual roots was read (an absolute #include): such an entry
  /// hits only where that path exists too.
  bool portable() const noexcept;

  friend bool operator==(const DependencySet&, const DependencySet&) = default;
};

/// Names one cubin: H(request's canonical bytes ‖ set's canonical bytes).
CacheKey cache_key_of(ByteView request_canonical, ByteView set_canonical);

}  // namespace cukiln
