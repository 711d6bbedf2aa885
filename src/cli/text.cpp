// SPDX-License-Identifier: Apache-2.0
#include "cli/text.hpp"

#include <algorithm>
#include <cstdint>

namespace cukiln::cli {

namespace {

constexpr CharacterRange kZeroWidth[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
                                         {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr CharacterRange kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                                    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                                    {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
                                    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

std::size_t width_of(Character c) {
  return is_in(kZeroWidth, c.code) ? 0 : is_in(kWide, c.code) ? 2 : 1;
}

constexpr std::string_view kEllipsis = "…";

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const Character c = decode_character(text);
    width += width_of(c);
    text.remove_prefix(c.bytes);
  }
  return width;
}

std::string shorten(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) {
    return std::string(text);
  }
  if (width == 0) {
    return {};
  }
  std::string out;
  std::size_t used = 0;
  while (!text.empty()) {
    const Character c = decode_character(text);
    if (used + width_of(c) > width - 1) {
      break;
    }
    used += width_of(c);
    out += text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
  }
  return out.append(kEllipsis);
}

std::string shorten_front(std::string_view text, std::size_t width) {
  std::size_t columns = display_width(text);
  if (columns <= width) {
    return std::string(text);
  }
  while (!text.empty() && columns + 1 > width) {
    const Character c = decode_character(text);
    columns -= width_of(c);
    text.remove_prefix(c.bytes);
  }
  return width == 0 ? std::string() : std::string(kEllipsis).append(text);
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t columns = display_width(text);
  return columns < width ? text.append(width - columns, ' ') : text;
}

std::string indented(std::string_view text, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out.append(end == 0 ? 0 : indent, ' ').append(text.substr(0, end)).append(1, '\n');
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    std::string line;
    while (!rest.empty()) {
      const std::size_t space = std::min(rest.find(' '), rest.size());
      const std::string_view word = rest.substr(0, space);
      if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
        lines.push_back(std::move(line));
        line.clear();
      }
      line += (line.empty() ? "" : " ") + std::string(word);
      rest.remove_prefix(std::min(space + 1, rest.size()));
    }
    lines.push_back(std::move(line));
    if (end == text.size()) {
      return lines;
    }
    text.remove_prefix(end + 1);
  }
}

std::string wrap_indented(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  for (const std::string& line : wrap(text, width > indent + 20 ? width - indent : 20)) {
    if (!out.empty()) {
      out.append(1, '\n').append(indent, ' ');
    }
    out += line;
  }
  return out;
}

}  // namespace cukiln::cli
