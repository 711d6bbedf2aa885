// SPDX-License-Identifier: Apache-2.0
#include "core/compile/include_scanner.hpp"

#include <algorithm>

namespace cukiln {

namespace {

using std::string_view;

void skip_blanks(ByteView& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
}

string_view word_of(ByteView text) {
  return text.substr(0, std::min(text.find_first_of(" \t\r\n/"), text.size()));
}

/// True for an include guard: `ifndef NAME` with `#define NAME` on the next line.
bool is_guard(ByteView directive) {
  directive.remove_prefix(string_view("ifndef").size());
  skip_blanks(directive);
  const string_view name = word_of(directive);
  const std::size_t end = directive.find('\n');
  if (name.empty() || end == ByteView::npos) {
    return false;
  }
  directive.remove_prefix(end + 1);
  skip_blanks(directive);
  if (!directive.starts_with("#")) {
    return false;
  }
  directive.remove_prefix(1);
  skip_blanks(directive);
  if (!directive.starts_with("define")) {
    return false;
  }
  directive.remove_prefix(string_view("define").size());
  skip_blanks(directive);
  return word_of(directive) == name;
}

/// True if only blanks precede `at` on its line. A `#include` quoted in a comment has other text
/// before it.
bool begins_its_line(ByteView text, std::size_t at) {
  while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t')) {
    --at;
  }
  return at == 0 || text[at - 1] == '\n';
}

/// True if the `/*` at `at` begins a comment, that is, is neither in a string nor after `//`.
/// `from` is the end of the comment before. A string that an earlier line left open is not
/// recognised.
bool begins_comment(ByteView text, std::size_t at, std::size_t from) {
  const std::size_t line_end = text.substr(0, at).rfind('\n');
  bool in_string = false;
  const std::size_t line = line_end == ByteView::npos ? 0 : line_end + 1;
  for (std::size_t i = std::max(line, from); i < at; ++i) {
    if (text[i] == '\\' || text.substr(i).starts_with("'\"'")) {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && text.substr(i).starts_with("//")) {
      return false;
    }
  }
  return !in_string;
}

/// Finds the block comments of a text, from its beginning to its end.
class BlockComments {
 public:
  explicit BlockComments(ByteView text) : text_(text), begin_(next(0)) {}

  /// Returns the end of the comment that contains `at`; `at` itself if none does. `at` must not
  /// decrease from call to call.
  std::size_t end_if_within(std::size_t at) {
    while (begin_ < at) {
      const std::size_t close = text_.find("*/", begin_ + 2);
      const std::size_t end = close == ByteView::npos ? text_.size() : close + 2;
      if (at < end) {
        return end;
      }
      begin_ = next(end);
    }
    return at;
  }

 private:
  std::size_t next(std::size_t from) const {
    std::size_t at = text_.find("/*", from);
    while (at != ByteView::npos && !begins_comment(text_, at, from)) {
      at = text_.find("/*", at + 2);
    }
    return at;
  }

  ByteView text_;
  std::size_t begin_;  // of the current or next comment; npos if there is none
};

void add_include(ByteView rest, std::vector<IncludeName>& names) {
  rest.remove_prefix(string_view("include").size());
  skip_blanks(rest);
  const bool quoted = rest.starts_with("\"");
  if (!quoted && !rest.starts_with("<")) {
    return;
  }
  const std::size_t end = rest.find_first_of(quoted ? "\"\n" : ">\n", 1);
  if (end != ByteView::npos && rest[end] != '\n' && end != 1) {
    names.push_back({rest.substr(1, end - 1), quoted});
  }
}

}  // namespace

std::vector<IncludeName> includes_in(ByteView text) {
  std::vector<IncludeName> names;
  BlockComments comments(text);
  int conditionals = 0;
  for (std::size_t at = text.find('#'); at != ByteView::npos; at = text.find('#', at + 1)) {
    if (!begins_its_line(text, at)) {
      continue;
    }
    if (const std::size_t end = comments.end_if_within(at); end != at) {
      at = end - 1;
      continue;
    }
    ByteView directive = text.substr(at + 1);
    skip_blanks(directive);
    if (directive.starts_with("if")) {
      const bool guard =
          conditionals == 0 && directive.starts_with("ifndef") && is_guard(directive);
      conditionals += guard ? 0 : 1;
    } else if (directive.starts_with("endif")) {
      conditionals = std::max(0, conditionals - 1);  // the guard was not counted
    } else if (conditionals == 0 && directive.starts_with("include")) {
      add_include(directive, names);
    }
  }
  return names;
}

std::vector<std::string> include_folders_of(const CompileOptions& options) {
  // A module's arguments have the first, the canonical spelling: see translate_flags.
  constexpr string_view kOptions[] = {"--include-path=/", "-I/", "-I=/"};
  std::vector<std::string> folders;
  for (const std::string& argument : options.arguments) {
    for (const string_view option : kOptions) {
      if (argument.starts_with(option)) {
        folders.push_back(argument.substr(option.size() - 1));
      }
    }
  }
  return folders;
}

}  // namespace cukiln
