// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/key/output_kind.hpp"

#include <cukiln/target.hpp>

namespace cukiln::dropin {

/// What the options of a compile say about its result.
struct Asked {
  OutputKind output = OutputKind::ptx;
  Target target;
  std::string bypass_reason;  ///< why the result cannot be stored; empty if it can
};
/// Reads the options of nvrtcCompileProgram. `default_capability` is NVRTC's own.
Asked read_options(const std::vector<std::string>& options, int default_capability);

}  // namespace cukiln::dropin
