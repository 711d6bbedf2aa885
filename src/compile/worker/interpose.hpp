// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Defines a function of libc's, so that NVRTC calls this one. The name is given as an assembler
/// label: the definition meets neither libc's declaration nor its inline version under
/// _FORTIFY_SOURCE.
#define CUKILN_DEFINE(result, label, name, parameters)    \
  extern "C" __attribute__((visibility("default"), used)) \
  result cukiln_##name parameters __asm__(label);         \
  result cukiln_##name parameters
