// SPDX-License-Identifier: Apache-2.0
#include "core/key/time_macro.hpp"

#include <string>

namespace cukiln {

namespace {

using std::string_view;

constexpr string_view kTrigraphBackslash = "?\?/";

/// Searches for the part after the underscores, because headers are full of underscores.
bool has_name(ByteView text, string_view name) {
  const string_view rest = name.substr(2);
  for (std::size_t at = text.find(rest); at != ByteView::npos; at = text.find(rest, at + 1)) {
    if (at >= 2 && text.compare(at - 2, name.size(), name) == 0) {
      return true;
    }
  }
  return false;
}

string_view find_in_joined(ByteView text) {
  if (text.find("TIME") != ByteView::npos) {
    for (const string_view macro : {string_view("__TIMESTAMP__"), string_view("__TIME__")}) {
      if (has_name(text, macro)) {
        return macro;
      }
    }
  }
  return has_name(text, "__DATE__") ? "__DATE__" : string_view();
}

/// The length of the line splice at `at`, a backslash or its trigraph up to the end of the line; 0
/// if there is none. Blanks before the line's end are allowed, as in GCC: today's NVRTC does not
/// allow them, but a later one may.
std::size_t splice_at(ByteView text, std::size_t at) {
  std::size_t end = at;
  if (text[at] == '\\') {
    ++end;
  } else if (text.compare(at, kTrigraphBackslash.size(), kTrigraphBackslash) == 0) {
    end += kTrigraphBackslash.size();
  } else {
    return 0;
  }
  end = text.find_first_not_of(" \t\r\v\f", end);
  return end != ByteView::npos && text[end] == '\n' ? end + 1 - at : 0;
}

bool is_name_character(char c) {
  return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// True for a splice between two characters of a name. Most splices continue a macro's definition
/// and have a blank on one side.
bool splits_name(ByteView text, std::size_t at) {
  const std::size_t length = at != 0 && is_name_character(text[at - 1]) ? splice_at(text, at) : 0;
  const std::size_t next = at + length;
  return length != 0 && next < text.size() &&
         (is_name_character(text[next]) || splice_at(text, next) != 0);
}

bool has_split_name(ByteView text, string_view backslash) {
  for (std::size_t at = text.find(backslash); at != ByteView::npos;
       at = text.find(backslash, at + 1)) {
    if (splits_name(text, at)) {
      return true;
    }
  }
  return false;
}

std::string without_splices(ByteView text) {
  std::string joined;
  joined.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t length = splice_at(text, at)) {
      at += length;
    } else {
      joined += text[at++];
    }
  }
  return joined;
}

}  // namespace

std::optional<std::string> join_split_names(ByteView text) {
  return has_split_name(text, "\\") || has_split_name(text, kTrigraphBackslash)
             ? std::optional(without_splices(text))
             : std::nullopt;
}

std::string_view find_time_macro(ByteView text) {
  if (const string_view macro = find_in_joined(text); !macro.empty()) {
    return macro;
  }
  const auto joined = join_split_names(text);
  return joined ? find_in_joined(*joined) : string_view();
}

}  // namespace cukiln
