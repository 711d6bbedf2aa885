// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/printable.hpp"

namespace cukiln::cli {

/// Returns the columns that printable UTF-8 takes on a terminal.
std::size_t display_width(std::string_view text);

/// Shortens text to at most `width` columns, with an ellipsis at its end.
std::string shorten(std::string_view text, std::size_t width);

/// Shortens text to at most `width` columns, with an ellipsis at its front, as for paths.
std::string shorten_front(std::string_view text, std::size_t width);

std::string pad_right(std::string text, std::size_t width);

/// Indents every line that is not empty, and ends the last one.
std::string indented(std::string_view text, std::size_t indent);

/// Breaks text at spaces into lines of at most `width` columns. A longer word has a line of its
/// own. Keeps line ends of the text.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Wraps text and indents every line after the first; the indent counts as part of `width`.
std::string wrap_indented(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace cukiln::cli
