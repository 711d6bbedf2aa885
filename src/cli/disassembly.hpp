// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/bytes.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Disassembles a cubin with nvdisasm or cuobjdump. Searches the toolkits and environments where
/// NVRTC is searched, then PATH. With `source_lines`, nvdisasm writes those of a line table before
/// the instructions. Errors: not_found (neither is installed), io (the tool failed; the log has its
/// output).
Result<std::string> disassemble(ByteView cubin, const LoaderOptions& options,
                                bool source_lines = false);

}  // namespace cukiln::cli
