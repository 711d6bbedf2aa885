// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln::worker {

/// Measures the most memory that the process had resident since a point in time. Opens its files
/// when it is constructed: once the process is not dumpable, and in the sandbox, it could not.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  /// Begins a measurement.
  void begin();
  /// The peak since `begin`; 0 if it is not known, because an earlier peak was higher and the
  /// kernel does not let it be reset.
  std::uint64_t bytes() const;

 private:
  int status_ = -1;
  int reset_ = -1;
  bool is_reset_ = false;
  std::uint64_t before_ = 0;
};

}  // namespace cukiln::worker
