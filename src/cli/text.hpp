// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cukiln::cli {

/// Text that cannot change what a terminal does: control characters (C0, C1), characters that
/// reorder text and bytes that are no UTF-8 become `\x1b`, `\u202e` and the like.
std::string printable(std::string_view text);

/// The same for text of several lines: line ends and tabs stay.
std::string printable_lines(std::string_view text);

/// Columns on a terminal. The text is printable UTF-8.
std::size_t display_width(std::string_view text);

/// At most `width` columns; what is left out shows as an ellipsis at the end.
std::string shorten(std::string_view text, std::size_t width);

/// The same with the ellipsis at the start: of a long path the end says more.
std::string shorten_front(std::string_view text, std::size_t width);

std::string pad_right(std::string text, std::size_t width);

/// Every line that is not empty behind `indent` spaces; a line end at the end.
std::string indented(std::string_view text, std::size_t indent);

/// Broken at spaces into lines of at most `width` columns; a longer word has a line of its own.
/// Line ends in the text stay.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// `wrap`, every line after the first behind `indent` spaces, which count.
std::string wrap_indented(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace cukiln::cli
