// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.hpp"

#include <cassert>

#include <fmt/format.h>

namespace cukiln {

namespace {

// Control characters, and those that reorder or hide the text around them.
constexpr CharacterRange kHarmful[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x061C, 0x061C},
                                       {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                                       {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
}  // namespace

Character decode_character(std::string_view text) {
  assert(!text.empty());
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) {
    return {first, 1, true};
  }
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) {
    return {first, 1, false};
  }
  std::uint32_t code = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) {
      return {first, 1, false};
    }
    code = (code << 6) | (at(i) & 0x3Fu);
  }
  constexpr std::uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kMinCode[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return {first, 1, false};
  }
  return {code, length, true};
}

namespace {

std::string escaped(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = decode_character(text);
    if (keep_lines && (c.code == '\n' || c.code == '\t')) {
      out += text[0];
    } else if (keep_lines && c.code == '\r' && text.size() > 1 && text[1] == '\n') {
      // Keeps CRLF as a line end.
    } else if (!c.valid) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_in(kHarmful, c.code)) {
      out += c.code == '\n'   ? "\\n"
             : c.code == '\t' ? "\\t"
             : c.code == '\r' ? "\\r"
             : c.code < 0x80  ? fmt::format("\\x{:02x}", c.code)
                              : fmt::format("\\u{:04x}", c.code);
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

}  // namespace cukiln
