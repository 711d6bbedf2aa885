// SPDX-License-Identifier: Apache-2.0
#include "store/signers.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "base/trusted_file.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxListBytes = 1 << 20;
constexpr std::size_t kKeyDigits = 43;  // base64 of 32 bytes, then one `=`
constexpr std::string_view kRevoked = "revoked ";

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

void read_lines(std::string_view text, const std::string& where, std::vector<KeyLine>& lines) {
  while (!text.empty()) {
    std::string_view line = next_piece(text, '\n');
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) {
      continue;
    }
    const bool revoked = line.substr(0, kRevoked.size()) == kRevoked;
    const std::string_view key = revoked ? trimmed(line.substr(kRevoked.size())) : line;
    lines.push_back({std::string(key), revoked, where});
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
      lines.push_back({item, false, {}});
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
