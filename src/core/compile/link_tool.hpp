// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/wire/messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

struct FailureContext;

/// What an NvrtcCompiler needs to link: it identifies nvJitLink, starts its workers and locks a
/// request as for NVRTC. Threads: safe.
struct LinkTool {
  /// Finds the nvJitLink for an NVRTC. Errors: not_found, naming every folder searched.
  Result<std::string> (*find)(const std::string& nvrtc_library, const NvrtcSearch& search);
  /// Encodes the parts and objects of a request for a worker. Errors: invalid_argument (together
  /// they are too large).
  Result<std::string> (*encode)(const CompileInput& input);
  /// Makes a result of what a worker linked. Errors: as Compiler::compile.
  Result<CompileResult> (*finish)(const FailureContext& context, wire::Compiled linked);
};

}  // namespace cukiln
