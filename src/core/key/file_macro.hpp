// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.hpp"

namespace cukiln {

/// True if a text spells a macro or a function of the compiler that gives the name of its file, or
/// a hidden folder, in whose place a log gets the real one.
bool names_its_file(ByteView text);

/// What `with_unusable_names` puts in the place of a name, with underscores up to its length.
inline constexpr std::string_view kUnusableName = "\\xq_____";

/// Returns a text in which each macro that gives the name of its file is an error where it is used.
/// Where it is not expanded, as in a macro for host code, the result is that of the text itself,
/// since all else stays in its place. The backslash is what makes it an error also as an operand of
/// `#` (a string with `\x` and no digit), of `##`, in conditions and in templates without
/// instances. Nothing if a use could go unnoticed: in a raw string, as a part of a longer name,
/// after a backslash, or of a function that gives the name.
std::optional<std::string> with_unusable_names(ByteView text);

/// True if a text may make a raw string by token pasting, also of what another text spells: a use
/// of an unusable name goes unnoticed there.
bool may_paste_raw_strings(ByteView text);

/// The folder of a library of CUDA's, `…/cub/`, if a file is the header that each compile with that
/// library reads, as `…/cub/version.cuh`; else nothing. These libraries use the names of their
/// files in messages only, and another folder of such a name may be a user's.
std::string_view folder_of_cuda_library(std::string_view path, ByteView text);

/// Ends the log of a program that was compiled with hidden folders if a header on disk names its
/// file: its result may depend on a name that it does not show, as by `sizeof(__FILE__)`. In the
/// log because that is stored with the entry: a hit knows it, too. No caller sees that log: the
/// program is then compiled with its real names.
inline constexpr std::string_view kNamesItsFile = "\n(a header names its file)\n";

}  // namespace cukiln
