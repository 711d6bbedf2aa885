// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace cukiln {

/// A character of UTF-8 text.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};
/// Decodes the first character of a text that is not empty. Overlong forms and surrogates are
/// invalid.
Character decode_character(std::string_view text);

/// Codes of characters, both ends included.
struct CharacterRange {
  std::uint32_t first, last;
};
template <std::size_t n>
bool is_in(const CharacterRange (&ranges)[n], std::uint32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](CharacterRange range) {
    return code >= range.first && code <= range.last;
  });
}

/// Escapes what could change a terminal's state or forge a line: control characters (C0, C1),
/// characters that reorder text and invalid UTF-8 become `\x1b`, `\u202e` and the like.
std::string printable(std::string_view text);

/// Like printable(), but keeps line ends and tabs.
std::string printable_lines(std::string_view text);

}  // namespace cukiln
