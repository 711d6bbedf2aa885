#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

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

bool is_key_name(std::string_view text) noexcept;

/// What makes a host a writer. Wiped when it goes.
class SecretKey {
 public:
  /// Errors: invalid_argument (the name).
  static Result<SecretKey> generate(std::string_view name);
  /// A file of `keygen`. Errors: not_found, io; invalid_argument: others may read it, or no key.
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
  /// Keys as `name:base64` or files of them, with commas between. A file has one key a line; `#`
  /// begins a comment, and `revoked name:base64` takes a key back, whoever else names it.
  /// Errors: invalid_argument with the line that is no key; not_found, io.
  static Result<TrustedKeys> parse(std::string_view list);

  void add(PublicKey key);  ///< once
  bool empty() const noexcept { return trusted_.empty(); }
  std::size_t size() const noexcept { return trusted_.size(); }

  enum class Verdict { good, unknown_signer, revoked, bad_signature };
  /// Two keys of one name are both tried: one of them is about to be replaced. On `good`, `signer`
  /// is the one that fits.
  Verdict verify(std::string_view name, ByteView message, const Signature& signature,
                 PublicKey& signer) const;

  /// Whether `signer`, as stored with an entry (`name:base64`), was taken back.
  bool has_revoked(std::string_view signer) const;
  bool revokes_any() const noexcept { return !revoked_.empty(); }

 private:
  Result<void> read(std::string_view text, const std::string& where);

  std::vector<PublicKey> trusted_;
  std::vector<PublicKey> revoked_;
};

}  // namespace cukiln
