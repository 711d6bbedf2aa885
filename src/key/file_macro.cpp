// SPDX-License-Identifier: Apache-2.0
#include "key/file_macro.hpp"

#include <algorithm>
#include <initializer_list>

#include "key/time_macro.hpp"

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

bool is_header_of_cuda(std::string_view path, ByteView text) {
  return has_one_of(path, {"/cuda/std/", "/cub/", "/thrust/"}) &&
         has_one_of(text, {"NVIDIA", "LLVM Project"});
}

}  // namespace cukiln
