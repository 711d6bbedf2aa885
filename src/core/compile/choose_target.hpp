// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/compile/compiler.hpp"

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// A target that an installed NVRTC knows, with that NVRTC's toolchain.
struct ChosenTarget {
  Target target;
  Toolchain toolchain;
  Toolchain linker = {};  ///< nvJitLink; of a module that links
};

/// Chooses what is compiled for a wanted target: the target itself if an NVRTC knows it, else the
/// first of its families that one knows (see target_and_families). Errors: those of
/// Compiler::toolchain; invalid_argument, listing the targets that exist.
Result<ChosenTarget> choose_target(Compiler& compiler, Target wanted);

}  // namespace cukiln
