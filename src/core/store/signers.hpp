// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>

namespace cukiln {

// A chain has the signers of an entry, one for each time that it was passed on, the oldest first,
// separated by a space. A signer is a public key, `name:base64`, or `unsigned` for an entry that
// was imported with `--insecure`. The chain of an entry that was compiled here is empty. An entry
// is trusted for its last signer, and a revocation applies to all of them.
// Before them the chain may have the mark kOwnToolkit, which has no `:` and is no signer.

inline constexpr std::string_view kUnsigned = "unsigned";
/// The mark of an entry whose CUDA headers are those that the process that compiled it found by
/// its own search. The first signature covers it. A later signer cannot vouch for it.
inline constexpr std::string_view kOwnToolkit = "own-toolkit";
inline constexpr std::size_t kMaxSigners = 32;

std::vector<std::string> split_signers(std::string_view chain);
/// Returns the chain with one more signer. A signer that is in the chain moves to the end.
std::string with_signer(std::string_view chain, std::string_view signer);
/// Returns the chain without the mark kOwnToolkit.
std::string_view without_mark(std::string_view chain) noexcept;
/// True if the only signer of an entry is the one that compiled it, with its own toolkit.
bool vouches_for_toolkit(std::string_view chain) noexcept;
/// True if the entry was last passed on without a signature.
bool is_unsigned(std::string_view chain) noexcept;
/// True if these can be a chain: at most kMaxSigners, each one word and no longer than a key.
bool are_signers(const std::vector<std::string>& signers) noexcept;

/// True for 1 to 64 letters, digits, `.`, `_` and `-`.
bool is_key_name(std::string_view text) noexcept;
/// True for `name:base64` with 32 bytes.
bool is_public_key(std::string_view text) noexcept;

/// The limits of the trust in a key.
struct KeyLimits {
  std::optional<std::int64_t> expires_s;  ///< since the epoch: trusted before it; empty: no limit
  std::vector<std::string> modules;       ///< prefixes of names of modules; empty: all modules

  /// Parses `expires=2027-01-31 modules=PREFIX modules=PREFIX`, each part optional. The key expires
  /// when this day begins in UTC. Errors: invalid_argument.
  static Result<KeyLimits> parse(std::string_view text);
  /// The limits as `parse` reads them.
  std::string text() const;

  /// True before the expiry. False for a clock that was never set, because it proves nothing.
  bool hold_at(std::int64_t now_s) const noexcept;
  /// True if the key may sign a module of this name.
  bool cover(std::string_view module) const noexcept;
  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};
/// A day in UTC, `2027-01-31`.
std::string date_text(std::int64_t seconds);

/// One line of a list of trusted keys.
struct KeyLine {
  std::string key;     ///< `name:base64`, not checked
  std::string limits;  ///< for KeyLimits::parse; empty if the key is revoked
  bool revoked = false;
  std::string where;  ///< the file; empty for a key of the list itself
};
/// Reads a list of keys `name:base64`, or files of them, separated by commas. A file has one key a
/// line; `#` starts a comment, and `revoked name:base64` revokes a key, whichever file lists it.
/// Limits may follow a key after a space. A file that another user could have written is refused
/// (base/trusted_file.hpp). Errors: not_found, io, invalid_argument.
Result<std::vector<KeyLine>> read_key_list(std::string_view list);

/// Reads the keys that such a list revokes. Errors: those of read_key_list; invalid_argument if a
/// revoked key is not a public key.
Result<std::vector<std::string>> read_revoked_keys(std::string_view list);
/// Reads the keys that such a list trusts for some modules only, `name:base64 modules=PREFIX`. A
/// key with malformed limits is among them, and covers no module. Errors: those of read_key_list.
Result<std::vector<std::string>> read_scoped_keys(std::string_view list);

/// The revoked keys. They are compared as text, so that no cryptography is needed. Threads: const
/// members are safe.
class RevokedKeys {
 public:
  RevokedKeys() = default;
  explicit RevokedKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool any() const noexcept { return !keys_.empty(); }
  /// True if one of the signers of a chain was revoked. Compares keys and not their names.
  bool signed_any_of(std::string_view chain) const noexcept;

 private:
  std::vector<std::string> keys_;
};

/// The keys that are trusted for some modules only. Threads: const members are safe.
class KeyScopes {
 public:
  KeyScopes() = default;
  /// Takes keys as read_scoped_keys returns them. One that is malformed covers no module.
  explicit KeyScopes(const std::vector<std::string>& keys);

  /// True if each signer of a chain may sign a module of this name: to sign an entry again does not
  /// widen the scope of an earlier signer.
  bool cover(std::string_view chain, std::string_view module) const noexcept;

 private:
  struct Scope {
    std::string key_bytes;              // base64
    std::vector<std::string> prefixes;  // empty: no module
  };
  std::vector<Scope> scopes_;
};

}  // namespace cukiln
