// SPDX-License-Identifier: Apache-2.0
#include "core/store/signers.hpp"

#include <time.h>

#include <algorithm>

#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxListBytes = 1 << 20;
constexpr std::size_t kKeyDigits = 43;  // base64 of 32 bytes, then one `=`
constexpr std::string_view kRevoked = "revoked ";
constexpr std::string_view kExpires = "expires=";
constexpr std::string_view kModules = "modules=";
constexpr int kFirstYear = 1900;  // of tm
constexpr std::int64_t kEarliestNow =
    1'767'225'600;  // 2026-01-01: no clock that was set is earlier
constexpr const char* kLimitsForm =
    "expected name:base64, then nothing, expires=2027-01-31, or modules=PREFIX (once for each)";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Returns the trimmed text before `separator`, and removes it from `rest`.
std::string_view next_piece(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view piece = trimmed(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return piece;
}

/// Returns the base64 of a key, without its name.
std::string_view bytes_of(std::string_view key) noexcept {
  const std::size_t colon = key.find(':');
  return colon == std::string_view::npos ? std::string_view() : key.substr(colon + 1);
}

/// Parses `2027-01-31`; empty if it is not a date.
std::optional<std::int64_t> parse_date(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  const auto is_form = [](char c, char form) {
    return form == 'd' ? c >= '0' && c <= '9' : c == form;
  };
  if (text.size() != kForm.size() ||
      !std::equal(text.begin(), text.end(), kForm.begin(), is_form)) {
    return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (const char c : text.substr(at, digits)) {
      value = value * 10 + (c - '0');
    }
    return value;
  };
  tm date{};
  date.tm_year = number(0, 4) - kFirstYear;
  date.tm_mon = number(5, 2) - 1;
  date.tm_mday = number(8, 2);
  const std::int64_t seconds = ::timegm(&date);
  // It takes the 31st of April for the 1st of May.
  return date_text(seconds) == text ? std::optional(seconds) : std::nullopt;
}

bool starts_with_any(std::string_view name, const std::vector<std::string>& prefixes) noexcept {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
    return name.substr(0, prefix.size()) == prefix;
  });
}

/// The key of a line, and the limits after it.
KeyLine split_line(std::string_view line, const std::string& where) {
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  return {std::string(line.substr(0, end)), std::string(trimmed(line.substr(end))), false, where};
}

void read_lines(std::string_view text, const std::string& where, std::vector<KeyLine>& lines) {
  while (!text.empty()) {
    std::string_view line = next_piece(text, '\n');
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) {
      continue;
    }
    const bool revoked = line.substr(0, kRevoked.size()) == kRevoked;
    if (revoked) {
      lines.push_back({std::string(trimmed(line.substr(kRevoked.size()))), {}, true, where});
    } else {
      lines.push_back(split_line(line, where));
    }
  }
}

}  // namespace

std::vector<std::string> split_signers(std::string_view chain) {
  std::vector<std::string> signers;
  while (!chain.empty()) {
    if (const std::string_view one = next_piece(chain, ' '); !one.empty()) {
      signers.emplace_back(one);
    }
  }
  return signers;
}

std::string with_signer(std::string_view chain, std::string_view signer) {
  std::string all;
  for (const std::string& one : split_signers(chain)) {
    if (one != signer) {
      all += one + " ";
    }
  }
  return all + std::string(signer);
}

std::string_view without_mark(std::string_view chain) noexcept {
  std::string_view rest = chain;
  return next_piece(rest, ' ') == kOwnToolkit ? rest : chain;
}

bool vouches_for_toolkit(std::string_view chain) noexcept {
  const std::string_view signers = without_mark(chain);
  return signers.size() < chain.size() && is_public_key(signers);
}

bool is_unsigned(std::string_view chain) noexcept {
  return chain.size() >= kUnsigned.size() &&
         chain.substr(chain.size() - kUnsigned.size()) == kUnsigned &&
         (chain.size() == kUnsigned.size() || chain[chain.size() - kUnsigned.size() - 1] == ' ');
}

bool are_signers(const std::vector<std::string>& signers) noexcept {
  return signers.size() <= kMaxSigners &&
         std::all_of(signers.begin(), signers.end(), [](const std::string& one) {
           return !one.empty() && one.size() <= kMaxNameBytes + 1 + kKeyDigits + 1 &&
                  std::all_of(one.begin(), one.end(), [](char c) { return c > ' ' && c < 0x7f; });
         });
}

bool is_key_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             std::string_view::npos;
}

bool is_public_key(std::string_view text) noexcept {
  const std::string_view bytes = bytes_of(text);
  // The last digit has four bits of the key, so that only 16 digits are canonical.
  return is_key_name(text.substr(0, text.find(':'))) && bytes.size() == kKeyDigits + 1 &&
         bytes.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") == kKeyDigits &&
         bytes[kKeyDigits] == '=' &&
         std::string_view("AEIMQUYcgkosw048").find(bytes[kKeyDigits - 1]) != std::string_view::npos;
}

std::string date_text(std::int64_t seconds) {
  const time_t time = seconds;
  tm date{};
  ::gmtime_r(&time, &date);
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + kFirstYear, date.tm_mon + 1, date.tm_mday);
}

Result<KeyLimits> KeyLimits::parse(std::string_view text) {
  KeyLimits limits;
  for (std::string_view rest = text; !(rest = trimmed(rest)).empty();) {
    const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    if (word.substr(0, kExpires.size()) == kExpires) {
      const std::string_view value = word.substr(kExpires.size());
      const auto date = parse_date(value);
      if (!date || limits.expires_s) {
        return make_error(ErrorCode::invalid_argument,
                          "expires={} cannot be the expiry of a key: expected one date, as in "
                          "expires=2027-01-31",
                          value.substr(0, 2 * kMaxNameBytes));
      }
      limits.expires_s = date;
    } else if (word.substr(0, kModules.size()) == kModules) {
      const std::string_view prefix = word.substr(kModules.size());
      const auto is_refused = [](char c) {
        return c == '*' || c == ',' || c == '#' || c == 0x7f ||
               static_cast<unsigned char>(c) <= ' ';
      };
      if (prefix.empty() || std::any_of(prefix.begin(), prefix.end(), is_refused)) {
        return make_error(ErrorCode::invalid_argument,
                          "modules={} cannot be the scope of a key: expected the beginning of "
                          "names of modules, without *, commas and #, as in modules=nvfp4_; repeat "
                          "modules= for several",
                          prefix.substr(0, 2 * kMaxNameBytes));
      }
      limits.modules.emplace_back(prefix);
    } else {  // is not shown: it may be a part of a secret key
      return make_error(ErrorCode::invalid_argument, "unknown text after a trusted key: {}",
                        kLimitsForm);
    }
  }
  return limits;
}

std::string KeyLimits::text() const {
  std::string out;
  if (expires_s) {
    out.append(kExpires).append(date_text(*expires_s));
  }
  for (const std::string& prefix : modules) {
    out.append(out.empty() ? "" : " ").append(kModules).append(prefix);
  }
  return out;
}

bool KeyLimits::hold_at(std::int64_t now_s) const noexcept {
  return !expires_s || (now_s >= kEarliestNow && now_s < *expires_s);
}

bool KeyLimits::cover(std::string_view module) const noexcept {
  return modules.empty() || starts_with_any(module, modules);
}

Result<std::vector<KeyLine>> read_key_list(std::string_view list) {
  std::vector<KeyLine> lines;
  while (!list.empty()) {
    const std::string item(next_piece(list, ','));
    if (item.empty()) {
      continue;
    }
    if (item.front() == '/' || item.find(':') == std::string::npos) {
      CUKILN_TRY(const std::string text,
                 read_trusted_file(item, "the list of trusted keys", kMaxListBytes));
      read_lines(text, item, lines);
    } else {
      lines.push_back(split_line(item, {}));
    }
  }
  return lines;
}

Result<std::vector<std::string>> read_revoked_keys(std::string_view list) {
  CUKILN_TRY(std::vector<KeyLine> lines, read_key_list(list));
  std::vector<std::string> keys;
  for (KeyLine& line : lines) {
    if (line.revoked && !is_public_key(line.key)) {
      return make_error(ErrorCode::invalid_argument,
                        "{}: a revoked key must be a public key, name:base64", line.where);
    }
    if (line.revoked) {
      keys.push_back(std::move(line.key));
    }
  }
  return keys;
}

Result<std::vector<std::string>> read_scoped_keys(std::string_view list) {
  CUKILN_TRY(const std::vector<KeyLine> lines, read_key_list(list));
  std::vector<std::string> keys;
  for (const KeyLine& line : lines) {
    auto limits = KeyLimits::parse(line.limits);
    if (!limits) {
      keys.push_back(line.key + " " + line.limits);  // as text, which covers no module
    } else if (!limits->modules.empty()) {
      limits->expires_s.reset();  // judged where an entry comes from elsewhere, not in the store
      keys.push_back(line.key + " " + limits->text());
    }
  }
  return keys;
}

KeyScopes::KeyScopes(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const KeyLine line = split_line(key, {});
    auto limits = KeyLimits::parse(line.limits);
    scopes_.push_back({std::string(bytes_of(line.key)),
                       limits ? std::move(limits->modules) : std::vector<std::string>()});
  }
}

bool KeyScopes::cover(std::string_view chain, std::string_view module) const noexcept {
  chain = without_mark(chain);
  while (!scopes_.empty() && !chain.empty()) {
    const std::string_view signer = bytes_of(next_piece(chain, ' '));
    const bool covered = std::all_of(scopes_.begin(), scopes_.end(), [&](const Scope& scope) {
      return scope.key_bytes != signer || starts_with_any(module, scope.prefixes);
    });
    if (!covered) {
      return false;
    }
  }
  return true;
}

bool RevokedKeys::signed_any_of(std::string_view chain) const noexcept {
  while (any() && !chain.empty()) {
    const std::string_view signer = bytes_of(next_piece(chain, ' '));
    const bool revoked =
        !signer.empty() && std::any_of(keys_.begin(), keys_.end(), [&](const std::string& key) {
          return bytes_of(key) == signer;
        });
    if (revoked) {
      return true;
    }
  }
  return false;
}

}  // namespace cukiln
