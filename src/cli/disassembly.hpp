// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/bytes.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// A cubin's machine code as text, through nvdisasm or cuobjdump: of the toolkits and environments
/// that are searched for NVRTC, else of PATH. Errors: not_found (neither is there), io (it failed,
/// with what it said).
Result<std::string> disassemble(ByteView cubin, const LoaderOptions& options);

}  // namespace cukiln::cli
