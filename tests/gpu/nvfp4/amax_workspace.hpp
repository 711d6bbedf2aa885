// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/support/device.hpp"

namespace cukiln::testing {

/// A workspace of launchers that compute a global scale, zeroed.
class AmaxWorkspace {
 public:
  explicit AmaxWorkspace(std::size_t bytes) : words_(std::vector<std::uint32_t>(bytes / 4, 0)) {}

  operator nvfp4::Workspace() const { return {words_.data(), words_.bytes()}; }  // NOLINT
  /// The number of thread blocks that it has room for.
  std::size_t blocks() const { return words_.size(); }
  /// Every launch leaves it zero.
  bool is_zero() const {
    const auto words = words_.download();
    return std::all_of(words.begin(), words.end(), [](std::uint32_t word) { return word == 0; });
  }

 private:
  DeviceBuffer<std::uint32_t> words_;
};

}  // namespace cukiln::testing
