// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/bytes.hpp"

namespace cukiln {

/// True if a text spells what gives the name of its file: a macro, or a function of the compiler's.
bool names_its_file(ByteView text);

/// True for a path below folders of CUDA's own headers, `…/cub/util_debug.cuh`, which use the names
/// of their files in messages only.
bool is_header_of_cuda(std::string_view path);

/// The end of the log of a program that was compiled with hidden folders, if a header on disk
/// spells what names its file: its result may depend on a name that it does not show, as by
/// `sizeof(__FILE__)`.
inline constexpr std::string_view kNamesItsFile = "\n(a header names its file)\n";

}  // namespace cukiln
