// SPDX-License-Identifier: Apache-2.0
#include "core/key/file_macro.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/key/time_macro.hpp"

namespace cukiln {

namespace {

bool has_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
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
