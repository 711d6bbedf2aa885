// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>

namespace cukiln {

/// The signers of an entry, one for each time that it was passed on, the oldest first, with a space
/// between: a public key, `name:base64`, or `unsigned` where it was imported without a signature,
/// by choice. Empty: compiled here. An entry is trusted for its last signer; a revocation looks for
/// all of them.
inline constexpr std::string_view kUnsigned = "unsigned";
inline constexpr std::size_t kMaxSigners = 32;

std::vector<std::string> split_signers(std::string_view chain);
/// A chain with one more signer; one that was there already moves to the end.
std::string with_signer(std::string_view chain, std::string_view signer);
/// Whether it was last passed on without a signature.
bool is_unsigned(std::string_view chain) noexcept;
/// Whether these can be a chain: kMaxSigners at most, each as long as a key can be and one word.
bool are_signers(const std::vector<std::string>& signers) noexcept;

/// Letters, digits, `.`, `_` and `-`; at most 64.
bool is_key_name(std::string_view text) noexcept;
/// `name:base64` with 32 bytes in it.
bool is_public_key(std::string_view text) noexcept;

/// One line of a list of trusted keys.
struct KeyLine {
  std::string key;  ///< `name:base64`, not checked
  bool revoked = false;
  std::string where;  ///< the file; empty: the list itself
};
/// Keys as `name:base64` or files of them, with commas between. A file has one key a line; `#`
/// begins a comment, and `revoked name:base64` takes a key back, whoever else names it. A file that
/// another user could have written is refused (base/trusted_file.hpp).
/// Errors: not_found, io, invalid_argument.
Result<std::vector<KeyLine>> read_key_list(std::string_view list);

/// The keys that such a list takes back. Errors: as above; invalid_argument: no public key.
Result<std::vector<std::string>> read_revoked_keys(std::string_view list);

/// The keys that were taken back, as texts: to know a signer it takes no arithmetic.
/// Threads: const members are safe.
class RevokedKeys {
 public:
  RevokedKeys() = default;
  explicit RevokedKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool any() const noexcept { return !keys_.empty(); }
  /// Whether one of the signers of a chain was revoked. Names do not count, only keys do.
  bool signed_any_of(std::string_view chain) const noexcept;

 private:
  std::vector<std::string> keys_;
};

}  // namespace cukiln
