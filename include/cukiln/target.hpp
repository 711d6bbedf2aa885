// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <cukiln/export.hpp>
#include <cukiln/result.hpp>

namespace cukiln {
inline namespace v0 {

/// A GPU architecture to compile for: `{100, 'a'}` is sm_100a. 100, 100a and 100f are three
/// targets.
///
/// A cubin with suffix `a` runs on that compute capability only, one with `f` on its family, one
/// without suffix on devices of the same major and at least the same minor version.
/// Source: CUDA C++ Programming Guide, "Feature set compiler targets".
struct CUKILN_API Target {
  int capability = 0;  ///< major · 10 + minor
  char suffix = 0;     ///< 0, 'a' or 'f'

  /// Parses `sm_100a`, `compute_100a` or `100a`. Errors: invalid_argument.
  static Result<Target> parse(std::string_view text);

  /// Returns `sm_100a`.
  std::string name() const;

  /// True if a cubin for this target runs on a device of `device_capability`.
  bool runs_on(int device_capability) const noexcept;

  friend bool operator==(Target a, Target b) noexcept {
    return a.capability == b.capability && a.suffix == b.suffix;
  }
  friend bool operator!=(Target a, Target b) noexcept { return !(a == b); }
};

}  // namespace v0
}  // namespace cukiln
