// SPDX-License-Identifier: Apache-2.0
#include "core/loader/config_text.hpp"

#include <sstream>
#include <string>

// toml++'s assertions fail on some files that it would then refuse with an error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include "core/base/printable.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

// toml++ 3.3 has undefined behaviour for some characters outside ASCII wherever they are. It is
// given each of their bytes as U+F0000 plus the byte, a character of private use that it passes on.
constexpr ByteView kStandIn = "\xF3\xB0";  // how these characters begin; two bytes follow

std::string with_stand_ins(ByteView text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x7f) {
      result += kStandIn;
      result += static_cast<char>(0x80 | byte >> 6);
      result += static_cast<char>(0x80 | (byte & 0x3f));
    } else {
      result += c;
    }
  }
  return result;
}

std::string without_stand_ins(ByteView text) {
  std::string original;
  while (!text.empty()) {
    const bool is_stand_in =
        text.size() >= 4 && text.substr(0, 2) == kStandIn && (text[2] & 0xfe) == 0x82;
    original += is_stand_in ? static_cast<char>(text[2] << 6 | (text[3] & 0x3f)) : text[0];
    text.remove_prefix(is_stand_in ? 4 : 1);
  }
  return original;
}

/// Returns the first line, from 1, that is not UTF-8; 0 if there is none.
std::size_t line_beyond_utf8(ByteView text) {
  std::size_t line = 1;
  while (!text.empty()) {
    const Character character = decode_character(text);
    if (!character.valid) {
      return line;
    }
    line += character.code == '\n';
    text.remove_prefix(character.bytes);
  }
  return 0;
}

/// What toml++ says of a text, with `\xc3` where it names the stand-in of that byte.
std::string reason(const toml::parse_error& error) {
  std::ostringstream what;
  what << error;
  std::string text = without_stand_ins(what.str());
  constexpr ByteView kEscaped = "\\U000F00";
  for (std::size_t at = 0; (at = text.find(kEscaped, at)) != std::string::npos;) {
    text.replace(at, kEscaped.size(), "\\x");
  }
  return text;
}

void add_values(const toml::node& node, std::vector<std::string>& values) {
  if (const auto text = node.value<std::string>()) {
    values.push_back(without_stand_ins(*text));
  } else if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      add_values(item, values);
    }
  } else {
    std::ostringstream out;
    node.visit([&](const auto& value) { out << value; });
    values.push_back(without_stand_ins(out.str()));
  }
}

}  // namespace

Result<std::vector<ConfigValue>> parse_config(ByteView text, const std::string& path) {
  if (const std::size_t line = line_beyond_utf8(text)) {
    return make_error(ErrorCode::invalid_argument, "line {} is not UTF-8", line);
  }
  constexpr ByteView kMark = "\xEF\xBB\xBF";  // what editors put before UTF-8
  if (text.substr(0, kMark.size()) == kMark) {
    text.remove_prefix(kMark.size());
  }
  const toml::parse_result parsed = toml::parse(with_stand_ins(text), path);
  if (!parsed) {
    return Error(ErrorCode::invalid_argument, reason(parsed.error()));
  }
  std::vector<ConfigValue> config;
  for (const auto& [key, node] : parsed.table()) {
    ConfigValue& value = config.emplace_back();
    value.name = without_stand_ins(key.str());
    add_values(node, value.values);
  }
  return config;
}

}  // namespace cukiln
