// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// The reasons why a result was used but not stored. The names are part of counters' names.
enum class NotStored { time, unobserved, too_large, no_disk, error };
inline constexpr const char* kNotStored[] = {"time", "unobserved", "too_large", "no_disk", "error"};

}  // namespace cukiln
