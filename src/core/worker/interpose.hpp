// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Defines a libc function, so that NVRTC's calls are bound to this definition. The name is given
/// as an assembler label, so that it conflicts neither with libc's declaration nor with its inline
/// version under _FORTIFY_SOURCE.
#define CUKILN_DEFINE(result, label, name, parameters)    \
  extern "C" __attribute__((visibility("default"), used)) \
  result cukiln_##name parameters __asm__(label);         \
  result cukiln_##name parameters
