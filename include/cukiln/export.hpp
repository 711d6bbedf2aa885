// SPDX-License-Identifier: Apache-2.0
#pragma once

/// CUKILN_API marks what leaves the shared library; everything else is hidden.
#if defined(CUKILN_STATIC)
#define CUKILN_API
#else
#define CUKILN_API __attribute__((visibility("default")))
#endif
