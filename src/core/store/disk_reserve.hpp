// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace cukiln {

/// `reserve.bin`: disk space that is released when the disk is full, so that the store can be
/// opened and entries removed. Threads: call with the writer lock held.
class DiskReserve {
 public:
  explicit DiskReserve(std::string path) : path_(std::move(path)) {}

  /// Grows the file to `bytes`, or leaves it as it is if the disk has no room. Does nothing for 0.
  void make(std::uint64_t bytes) const noexcept;
  /// Removes the file.
  void release() const noexcept;
  /// Releases as much as SQLite needs to open a store. False if nothing is left.
  bool release_some() const noexcept;

 private:
  std::string path_;
};

}  // namespace cukiln
