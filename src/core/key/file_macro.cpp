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

/// True if a text may have a raw string, or make one by token pasting.
bool may_have_raw_strings(ByteView text) {
  const auto begins_word = [&](std::size_t at) {
    return at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0 ||
           std::string_view("LUu8").find(text[at - 1]) != std::string_view::npos;
  };
  for (std::size_t at = text.find('R'); at != ByteView::npos; at = text.find('R', at + 1)) {
    const std::size_t next = text.find_first_not_of(" \t", at + 1);
    if (begins_word(at) && next != ByteView::npos &&
        std::string_view("\"#%\\?").find(text[next]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool names_its_file(ByteView text) {
  const auto is_named_in = [](std::string_view joined) {
    return has_one_of(joined, {"__FILE__", "__BASE_FILE__", "__builtin_FILE", "source_location"});
  };
  if (is_named_in(text)) {
    return true;
  }
  const auto joined = join_split_names(text);
  return joined && is_named_in(*joined);
}

std::optional<std::string> with_unusable_names(ByteView text) {
  if (may_have_raw_strings(text) || text.find("?\?/") != ByteView::npos) {
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
