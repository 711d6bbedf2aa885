// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/hasher.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// One place that a compile looked at, and what was there.
struct Observation {
  enum class Kind : std::uint8_t { file = 1, folder = 2, absent = 3 };
  Kind kind = Kind::absent;
  std::string path;  ///< virtual
  ContentHash hash;  ///< file: of the very bytes that were served
  /// Files and folders: which of them are one and the same on disk (links, `a/../x.h`), because
  /// `#pragma once` goes by that. Numbered from 0 in order of first use: equal numbers, one file.
  std::uint32_t identity = 0;

  friend bool operator==(const Observation&, const Observation&) = default;
};

/// What a compile looked at besides its sources, in the order in which it did. The compiler is a
/// function of the answers, so two sets of one request are equal up to the first place where
/// something else was found: SetTree rests on that.
struct DependencySet {
  std::vector<Observation> observations;

  /// Appends; a file or folder without a number is one of its own.
  void add_file(std::string path, const ContentHash& hash);
  void add_file(std::string path, const ContentHash& hash, std::uint32_t identity);
  void add_folder(std::string path);
  void add_folder(std::string path, std::uint32_t identity);
  void add_absent(std::string path);

  std::string canonical() const;
  static Result<DependencySet> parse(ByteView canonical);

  std::size_t files() const noexcept;
  /// The paths where such a thing was found, in order.
  std::vector<std::string> paths(Observation::Kind kind) const;
  /// The observation of a path; null: the compile did not look there.
  const Observation* find(std::string_view path) const noexcept;
  /// False when a path outside the virtual roots was read (an absolute #include): such an entry
  /// hits only where that path exists too.
  bool portable() const noexcept;

  friend bool operator==(const DependencySet&, const DependencySet&) = default;

 private:
  std::uint32_t next_identity() const noexcept;
};

/// Identifies one cubin: the hash of the request's digest and the set's canonical bytes.
CacheKey cache_key_of(const RequestDigest& request, ByteView set_canonical) noexcept;
CacheKey cache_key_of(ByteView request_canonical, ByteView set_canonical) noexcept;

}  // namespace cukiln
