// SPDX-License-Identifier: Apache-2.0
#include "core/key/file_macro.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <utility>

#include "core/key/time_macro.hpp"

namespace cukiln {

namespace {

bool has_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

constexpr ByteView kLineBlanks = " \t\v\f";

ByteView without_blanks(ByteView text) {
  return text.substr(std::min(text.find_first_not_of(kLineBlanks), text.size()));
}

bool is_in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// True if a word of the text is the prefix of raw strings, and `is` what is before it and, without
/// blanks, behind it.
template <class Is>
bool has_raw_prefix(ByteView text, const Is& is) {
  for (std::size_t at = text.find('R'); at != ByteView::npos; at = text.find('R', at + 1)) {
    ByteView before = text.substr(0, at);
    for (const ByteView prefix : {"u8", "u", "U", "L"}) {
      if (before.ends_with(prefix)) {
        before.remove_suffix(prefix.size());
        break;
      }
    }
    const ByteView after = text.substr(at + 1);
    const bool is_word = (before.empty() || !is_in_word(before.back())) &&
                         (after.empty() || !is_in_word(after.front()));
    if (is_word && is(before, without_blanks(after))) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool names_its_file(ByteView text) {
  const auto is_named_in = [](std::string_view joined) {
    return has_one_of(joined, {"__FILE__", "__BASE_FILE__", "__builtin_FILE", "_CCCL_BUILTIN_FILE",
                               "source_location", "/cukiln/"});
  };
  if (is_named_in(text)) {
    return true;
  }
  const auto joined = join_split_names(text);
  return joined && is_named_in(*joined);
}

bool may_paste_raw_strings(ByteView text) {
  for (std::size_t at = text.find("##"); at != ByteView::npos; at = text.find("##", at + 1)) {
    const ByteView operand = without_blanks(text.substr(at + 2));
    if (operand.starts_with("\"") || operand.starts_with("#")) {
      return true;
    }
  }
  return has_raw_prefix(text, [](ByteView before, ByteView after) {
    const std::size_t last = before.find_last_not_of(kLineBlanks);
    const bool is_operand = last != ByteView::npos && before[last] == '#';
    const bool is_argument =
        after.starts_with(",") && without_blanks(after.substr(1)).starts_with("\"");
    const bool ends_line = after.starts_with("\n") || after.starts_with("\r");
    const ByteView line = before.substr(before.rfind('\n') + 1);  // npos + 1: 0
    const bool ends_macro = ends_line && without_blanks(line).starts_with("#");
    return after.empty() || is_operand || is_argument || ends_macro || after.starts_with("/*") ||
           ByteView("#%\\?").find(after.front()) != ByteView::npos;
  });
}

std::optional<std::string> with_unusable_names(ByteView text) {
  const auto is_literal = [](ByteView /*before*/, ByteView after) {
    return after.starts_with("\"");
  };
  if (may_paste_raw_strings(text) || has_raw_prefix(text, is_literal) ||
      has_one_of(text, {"?\?/"})) {
    return std::nullopt;
  }
  std::string out(text);
  for (const std::string_view word : {"__FILE__", "__BASE_FILE__", "__builtin_FILE"}) {
    std::string unusable(kUnusableName);
    unusable.resize(word.size(), '_');
    for (std::size_t at = out.find(word, 1); at != std::string::npos; at = out.find(word, at + 1)) {
      if (std::string_view(" \t(,").find(out[at - 1]) != std::string_view::npos) {
        out.replace(at, word.size(), unusable);
      }
    }
  }
  return names_its_file(out) ? std::nullopt : std::optional(std::move(out));
}

std::string_view folder_of_cuda_library(std::string_view path, ByteView text) {
  const std::string_view folder = path.substr(0, path.rfind('/') + 1);  // npos + 1: 0
  const std::string_view name = path.substr(folder.size());
  const auto is_in = [&](std::string_view end) { return folder.ends_with(end); };
  const bool is_read_by_all = (name == "version.cuh" && is_in("/cub/")) ||
                              (name == "version.h" && is_in("/thrust/")) ||
                              (name == "__config" && is_in("/cuda/std/detail/"));
  if (!is_read_by_all || !has_one_of(text, {"NVIDIA", "LLVM Project"})) {
    return {};
  }
  return name == "__config" ? folder.substr(0, folder.size() - std::string_view("detail/").size())
                            : folder;
}

}  // namespace cukiln
