// SPDX-License-Identifier: Apache-2.0
#include "core/compile/kernel_names.hpp"

#include <algorithm>
#include <string_view>

#include "core/key/name_expression.hpp"

namespace cukiln {

namespace {

using std::string_view;

constexpr string_view kGlobal = "__global__";

bool is_name_character(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Replaces comments by blanks.
std::string without_comments(ByteView text) {
  std::string out(text);
  for (std::size_t at = out.find('/'); at < out.size(); at = out.find('/', at + 1)) {
    const bool is_line = out.compare(at, 2, "//") == 0;
    if (!is_line && out.compare(at, 2, "/*") != 0) {
      continue;
    }
    const std::size_t end = is_line ? out.find('\n', at) : out.find("*/", at + 2);
    const std::size_t after = end == std::string::npos ? out.size() : end + (is_line ? 0 : 2);
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(at),
              out.begin() + static_cast<std::ptrdiff_t>(after), ' ');
    at = after - 1;
  }
  return out;
}

/// Returns the position of the parenthesis that closes the one at `at`.
std::size_t closing(string_view text, std::size_t at) {
  std::size_t depth = 0;
  for (; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : 0;
    if (text[at] == ')' && --depth == 0) {
      return at;
    }
  }
  return text.size();
}

/// Returns the name of the function declared at `at`: the word before its parameters. Attributes
/// have parentheses too (`__launch_bounds__(128)`, `__attribute__((unused))`, `alignas(8)`) and are
/// skipped.
std::string declared_name(string_view text, std::size_t at) {
  const std::size_t end = text.find_first_of(";{}", at);
  for (at = text.find('(', at); at < end; at = text.find('(', closing(text, at))) {
    std::size_t last = at;
    while (last > 0 && (text[last - 1] == ' ' || text[last - 1] == '\n')) {
      --last;
    }
    std::size_t first = last;
    while (first > 0 && is_name_character(text[first - 1])) {
      --first;
    }
    const string_view name = text.substr(first, last - first);
    if (!name.empty() && name.substr(0, 2) != "__" && name != "alignas") {
      return std::string(name);
    }
  }
  return {};
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) {
    list.push_back(std::move(text));
  }
}

}  // namespace

std::vector<std::string> kernels_in(ByteView source) {
  const std::string text = without_comments(source);
  std::vector<std::string> names;
  for (std::size_t at = text.find(kGlobal); at < text.size(); at = text.find(kGlobal, at + 1)) {
    std::string name = declared_name(text, at);
    const std::size_t before = text.find_last_of(";{}", at);
    const std::size_t begin = before == std::string::npos ? 0 : before;
    const bool is_template =
        string_view(text).substr(begin, at - begin).find("template") != string_view::npos;
    add_once(names, is_template && !name.empty() ? name.append(kTemplateMark) : std::move(name));
  }
  return names;
}

std::vector<std::string> unresolved_names(ByteView log) {
  constexpr string_view kLocation = "__nv_name_map(";
  constexpr string_view kPragma = "#pragma nv_mangled_name ";
  std::vector<std::string> names;
  for (std::size_t at = log.find(kLocation); at != ByteView::npos;
       at = log.find(kLocation, at + 1)) {
    const std::size_t pragma = log.find(kPragma, at);
    if (pragma != ByteView::npos) {
      const ByteView rest = log.substr(pragma + kPragma.size());
      add_once(names, canonical_name(rest.substr(0, rest.find('\n'))));
    }
  }
  return names;
}

}  // namespace cukiln
