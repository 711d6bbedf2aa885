// SPDX-License-Identifier: Apache-2.0
#pragma once

/// CUKILN_API marks what leaves the shared library; everything else is hidden.
///
/// Public types and functions lie in `inline namespace v0`: callers write `cukiln::Store`, and the
/// symbols carry the version of the interface, so that two versions link into one program.
#if defined(CUKILN_STATIC)
#define CUKILN_API
#else
#define CUKILN_API __attribute__((visibility("default")))
#endif
