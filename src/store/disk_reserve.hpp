// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace cukiln {

/// `reserve.bin`: space that a full disk gets back, so that the store can be opened and entries
/// removed. Threads: none; call as the only writer.
class DiskReserve {
 public:
  explicit DiskReserve(std::string path) : path_(std::move(path)) {}

  /// Makes it as large as that, or leaves it where there is no room. Does nothing for 0 bytes.
  void make(std::uint64_t bytes) const noexcept;
  /// Gives all of it back.
  void release() const noexcept;
  /// Gives a little of it back: what SQLite needs to open a store. False: nothing is left.
  bool release_some() const noexcept;

 private:
  std::string path_;
};

}  // namespace cukiln
