// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "store/signers.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Ed25519's, of libsodium.
using Signature = std::array<std::uint8_t, 64>;

/// Who signed: `name:base64`, as in Nix. The name is for people and for finding the key; what
/// counts is the key.
struct PublicKey {
  std::string name;  ///< letters, digits, `.`, `_` and `-`; at most 64
  std::array<std::uint8_t, 32> bytes{};

  static Result<PublicKey> parse(std::string_view text);
  std::string text() const;
  bool verifies(ByteView message, const Signature& signature) const noexcept;
  friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

/// What makes a host a writer. Wiped when it goes.
class SecretKey {
 public:
  /// Errors: invalid_argument (the name).
  static Result<SecretKey> generate(std::string_view name);
  /// A file of `keygen`, judged when it is open. Errors: not_found, io; invalid_argument: others
  /// may read it, or no key.
  static Result<SecretKey> load(const std::string& path);

  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  const PublicKey& public_key() const noexcept { return public_key_; }
  Signature sign(ByteView message) const;
  std::string text() const;  ///< what the file holds: `name:base64`

 private:
  SecretKey() = default;
  PublicKey public_key_;
  std::array<std::uint8_t, 64> bytes_{};
};

/// The keys whose entries are believed, and those that no longer are.
class TrustedKeys {
 public:
  /// See read_key_list. Errors: invalid_argument with the line that is no key, or for a file that
  /// another user could have written; not_found, io.
  static Result<TrustedKeys> parse(std::string_view list);

  void add(PublicKey key);  ///< once
  bool empty() const noexcept { return trusted_.empty(); }
  std::size_t size() const noexcept { return trusted_.size(); }

  enum class Verdict { good, unknown_signer, revoked, bad_signature };
  /// Two keys of one name are both tried: one of them is about to be replaced. On `good`, `signer`
  /// is the one that fits.
  Verdict verify(std::string_view name, ByteView message, const Signature& signature,
                 PublicKey& signer) const;

  /// Those that were taken back.
  const RevokedKeys& revoked() const noexcept { return revoked_texts_; }

 private:
  std::vector<PublicKey> trusted_;
  std::vector<PublicKey> revoked_;
  RevokedKeys revoked_texts_;  ///< the same
};

}  // namespace cukiln
