// SPDX-License-Identifier: Apache-2.0
#include "loader/config_text.hpp"

#include <sstream>

// toml++'s assertions fail on some files that it would then refuse with an error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include "base/result.hpp"

namespace cukiln {

namespace {

/// Returns the first line, from 1, with a character outside ASCII that is in no string or comment;
/// 0 if there is none. TOML forbids those, and toml++ 3.3 has undefined behaviour for some. A
/// string over several lines is treated as if it ended with its line.
std::size_t line_beyond_ascii(ByteView text) {
  constexpr ByteView kMark = "\xEF\xBB\xBF";  // what editors put before UTF-8
  if (text.substr(0, kMark.size()) == kMark) {
    text.remove_prefix(kMark.size());
  }
  std::size_t line = 1;
  char inside = 0;  // the quote of a string, or #
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      inside = 0;
    } else if (inside == '"' && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
      ++i;
    } else if (inside == 0 && (c == '"' || c == '\'' || c == '#')) {
      inside = c;
    } else if (inside == c && c != '#') {
      inside = 0;
    } else if (inside == 0 && static_cast<unsigned char>(c) > 0x7f) {
      return line;
    }
  }
  return 0;
}

void add_values(const toml::node& node, std::vector<std::string>& values) {
  if (const auto text = node.value<std::string>()) {
    values.push_back(*text);
  } else if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      add_values(item, values);
    }
  } else {
    std::ostringstream out;
    node.visit([&](const auto& value) { out << value; });
    values.push_back(out.str());
  }
}

}  // namespace

Result<std::vector<ConfigValue>> parse_config(ByteView text, const std::string& path) {
  if (const std::size_t line = line_beyond_ascii(text)) {
    return make_error(ErrorCode::invalid_argument,
                      "line {} has a character outside ASCII, which only strings on one line and "
                      "comments may have",
                      line);
  }
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    std::ostringstream what;
    what << parsed.error();
    return Error(ErrorCode::invalid_argument, what.str());
  }
  std::vector<ConfigValue> config;
  for (const auto& [key, node] : parsed.table()) {
    ConfigValue& value = config.emplace_back();
    value.name = key.str();
    add_values(node, value.values);
  }
  return config;
}

}  // namespace cukiln
