// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// A path that a compile opened or probed, and what was there.
struct Observation {
  enum class Kind : std::uint8_t { file = 1, folder = 2, absent = 3 };
  Kind kind = Kind::absent;
  std::string path;  ///< virtual
  ContentHash hash;  ///< file: digest of the bytes that NVRTC was given
  /// Identity class of a file or folder: two paths to one file on disk (links, `a/../x.h`) have the
  /// same number, because `#pragma once` depends on it. Numbered from 0 in order of first use.
  std::uint32_t identity = 0;

  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Every path that a compile opened or probed besides its sources, in order. The compiler's next
/// access depends only on the answers before it, so two sets of one request are equal up to the
/// first path where something else was found. SetTree relies on that.
struct DependencySet {
  std::vector<Observation> observations;

  /// Appends. Without `identity` the file or folder gets an identity class of its own.
  void add_file(std::string path, const ContentHash& hash);
  void add_file(std::string path, const ContentHash& hash, std::uint32_t identity);
  void add_folder(std::string path);
  void add_folder(std::string path, std::uint32_t identity);
  void add_absent(std::string path);

  /// The canonical encoding, which is hashed and stored.
  std::string canonical() const;
  /// Errors: corrupt.
  static Result<DependencySet> parse(ByteView canonical);

  /// The number of files.
  std::size_t files() const noexcept;
  /// The paths of the observations of one kind, in order.
  std::vector<std::string> paths(Observation::Kind kind) const;
  /// The observation of a path, or null if the compile did not access it.
  const Observation* find(std::string_view path) const noexcept;
  /// False if a file outside the virtual roots was read (an absolute #include). Such an entry hits
  /// only on machines where that path exists too.
  bool portable() const noexcept;

  friend bool operator==(const DependencySet&, const DependencySet&) = default;

 private:
  std::uint32_t next_identity() const noexcept;
};

/// The cache key: H(request digest ‖ canonical dependency set).
CacheKey cache_key_of(const RequestDigest& request, ByteView set_canonical) noexcept;
CacheKey cache_key_of(ByteView request_canonical, ByteView set_canonical) noexcept;

}  // namespace cukiln
