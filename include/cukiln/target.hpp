// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <cukiln/export.hpp>
#include <cukiln/result.hpp>

namespace cukiln {
inline namespace v0 {

/// A GPU architecture that a cubin is built for: `{100, 'a'}` is sm_100a. Suffixes are part of the
/// identity: 100, 100a and 100f are three targets.
///
/// A cubin with suffix `a` runs on that compute capability only, with `f` on its family, without
/// suffix on that major version from that minor version up.
/// Source: CUDA C++ Programming Guide, "Feature set compiler targets".
struct CUKILN_API Target {
  int capability = 0;  ///< major · 10 + minor
  char suffix = 0;     ///< 0, 'a' or 'f'

  /// Takes `sm_100a`, `compute_100a`, `100a`. Errors: invalid_argument, naming what was given.
  static Result<Target> parse(std::string_view text);

  /// `sm_100a`.
  std::string name() const;

  /// Whether a cubin for this target can run on a device of `device_capability`.
  bool runs_on(int device_capability) const noexcept;

  friend bool operator==(Target a, Target b) noexcept {
    return a.capability == b.capability && a.suffix == b.suffix;
  }
  friend bool operator!=(Target a, Target b) noexcept { return !(a == b); }
};

}  // namespace v0
}  // namespace cukiln
