// SPDX-License-Identifier: Apache-2.0
#include "cli/entries.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kKeyDigits = 64;
constexpr std::size_t kMostShown = 5;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

}  // namespace

bool looks_like_key(const std::string& text) noexcept {
  return text.size() >= kLeastKeyDigits && text.size() <= kKeyDigits &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

Result<CacheKey> find_key(const std::vector<EntrySummary>& entries, const std::string& text) {
  if (!looks_like_key(text)) {
    return make_error(ErrorCode::invalid_argument,
                      "\"{}\" is no key: expected {} to {} hex digits, the beginning of a key of "
                      "'cukiln ls'",
                      text, kLeastKeyDigits, kKeyDigits);
  }
  const std::string prefix = lower(text);
  std::vector<const EntrySummary*> found;
  for (const EntrySummary& entry : entries) {
    if (entry.key.hex().compare(0, prefix.size(), prefix) == 0) {
      found.push_back(&entry);
    }
  }
  if (found.empty()) {
    return make_error(ErrorCode::not_found, "no entry {} in the store; 'cukiln ls' shows all {}",
                      text, entries.size());
  }
  if (found.size() > 1) {
    std::string list;
    for (std::size_t i = 0; i < std::min(found.size(), kMostShown); ++i) {
      list +=
          fmt::format("{}{} ({})", i == 0 ? "" : ", ", found[i]->key.hex(), found[i]->labels.name);
    }
    return make_error(ErrorCode::invalid_argument,
                      "{} is the beginning of {} keys: {}{}; give more digits", text, found.size(),
                      list, found.size() > kMostShown ? ", ..." : "");
  }
  return found.front()->key;
}

Exit exit_of_key_error(const Error& error) noexcept {
  return error.code() == ErrorCode::invalid_argument ? Exit::usage : Exit::failed;
}

std::string short_key(const CacheKey& key) { return key.hex().substr(0, kShownKeyDigits); }

std::int64_t now_s() { return Clock::system().now_s(); }

}  // namespace cukiln::cli
