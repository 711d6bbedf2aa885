// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln::testing {

/// Whether this test is built with a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace cukiln::testing
