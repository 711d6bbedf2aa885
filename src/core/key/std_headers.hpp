// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/hasher.hpp"

namespace cukiln {

/// A standard header for device code, of `kernels_src/std`. FileServer serves it below kStdFolder.
struct StdHeader {
  std::string_view text;
  ContentHash digest;       ///< of `text`
  std::uint64_t inode = 0;  ///< unique among these headers
};

/// Returns the header with a name such as `cstdint`.
std::optional<StdHeader> std_header(std::string_view name) noexcept;

/// True for the virtual path of one, such as `/cukiln/toolkit/cstdint`, whether a FileServer serves
/// it there or not.
bool is_std_header(std::string_view virtual_path) noexcept;

/// The names of all: `algorithm`, `array`, … sorted.
std::vector<std::string_view> std_header_names();

}  // namespace cukiln
