// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/store/signers.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// An Ed25519 signature.
using Signature = std::array<std::uint8_t, 64>;

/// A signer's public key, `name:base64` as in Nix. The name is used in messages and to find the
/// key; only the key itself is verified.
struct PublicKey {
  std::string name;  ///< letters, digits, `.`, `_` and `-`; at most 64
  std::array<std::uint8_t, 32> bytes{};

  static Result<PublicKey> parse(std::string_view text);
  std::string text() const;
  bool verifies(ByteView message, const Signature& signature) const noexcept;
  friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

/// A key that signs: a host that has one uploads to remote stores. Wiped by the destructor.
class SecretKey {
 public:
  /// Errors: invalid_argument (the name).
  static Result<SecretKey> generate(std::string_view name);
  /// Reads a file written by `cukiln keygen`. Errors: not_found, io; invalid_argument (other users
  /// may read it, or it holds no key).
  static Result<SecretKey> load(const std::string& path);

  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  const PublicKey& public_key() const noexcept { return public_key_; }
  Signature sign(ByteView message) const;
  std::string text() const;  ///< the content of its file: `name:base64`

 private:
  SecretKey() = default;
  PublicKey public_key_;
  std::array<std::uint8_t, 64> bytes_{};
};

/// A public key and the limits of the trust in it.
struct TrustedKey {
  PublicKey key;
  KeyLimits limits;
};

/// The trusted and the revoked keys.
class TrustedKeys {
 public:
  /// Parses a list as described at read_key_list. Errors: invalid_argument, for a malformed line or
  /// a file that another user could have written; not_found, io.
  /// A key that is listed twice has the same limits.
  static Result<TrustedKeys> parse(std::string_view list);

  /// Trusts a key without limits. No effect if the key is trusted already, whatever its limits.
  void add(PublicKey key);
  bool empty() const noexcept { return trusted_.empty(); }
  /// The number of keys that are trusted and not revoked.
  std::size_t size() const noexcept;
  bool is_revoked(const PublicKey& key) const noexcept;
  /// Whether the fleet accepts what a key signs now, of some module.
  bool may_sign(const PublicKey& key, std::int64_t now_s) const {
    return !is_revoked(key) && limits_of(key).hold_at(now_s);
  }

  enum class Verdict { good, unknown_signer, revoked, bad_signature, expired };
  /// Tries every key of that name: there are two while a key is being replaced. On `good` and
  /// `expired`, `signer` is the key that verified the signature. The caller checks the scopes.
  Verdict verify(std::string_view name, ByteView message, const Signature& signature,
                 std::int64_t now_s, TrustedKey& signer) const;
  const std::vector<TrustedKey>& trusted() const noexcept { return trusted_; }
  /// The limits of a key; those of an unknown key are empty.
  KeyLimits limits_of(const PublicKey& key) const;

  const KeyScopes& scopes() const noexcept { return scopes_; }
  const RevokedKeys& revoked() const noexcept { return revoked_texts_; }

 private:
  Result<void> add_line(TrustedKey key);

  std::vector<TrustedKey> trusted_;
  std::vector<PublicKey> revoked_;
  KeyScopes scopes_;
  RevokedKeys revoked_texts_;  ///< revoked_ as texts
};

}  // namespace cukiln
