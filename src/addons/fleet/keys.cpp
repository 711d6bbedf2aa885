// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/keys.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "addons/fleet/base64.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxNameLength = 64;
constexpr std::size_t kMaxShownLength = 32;  // in errors: the text may be a secret key
constexpr std::size_t kSecretFileBytes = 4096;

const unsigned char* bytes_of(ByteView view) noexcept {
  return reinterpret_cast<const unsigned char*>(view.data());
}

Error bad_name(std::string_view name) {
  return make_error(ErrorCode::invalid_argument,
                    "\"{}\" cannot be the name of a key: expected at most {} letters, digits, '.', "
                    "'_' and '-'",
                    name.substr(0, kMaxNameLength), kMaxNameLength);
}

/// Parses `name:base64` with exactly `size` encoded bytes.
template <std::size_t size>
bool parse_key(std::string_view text, std::string& name, std::array<std::uint8_t, size>& bytes) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !is_key_name(text.substr(0, colon))) {
    return false;
  }
  name = text.substr(0, colon);
  const std::string_view encoded = text.substr(colon + 1);
  std::size_t got = 0;
  const char* end = nullptr;
  return ::sodium_base642bin(bytes.data(), size, encoded.data(), encoded.size(), nullptr, &got,
                             &end, sodium_base64_VARIANT_ORIGINAL) == 0 &&
         got == size && end == encoded.data() + encoded.size();
}

template <std::size_t size>
std::string key_text(const std::string& name, const std::array<std::uint8_t, size>& bytes) {
  return name + ":" + to_base64(ByteView(reinterpret_cast<const char*>(bytes.data()), size));
}

/// The text of a secret key file. Wiped by the destructor.
class SecretText {
 public:
  SecretText() = default;
  ~SecretText() { ::sodium_memzero(bytes_.data(), bytes_.size()); }
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;

  /// Reads the first line of a file; empty if the file is too long for a key. Errors: io.
  Result<std::string_view> read(const UniqueFd& file, const std::string& path) {
    std::size_t done = 0;
    while (done < bytes_.size()) {
      const ssize_t got = ::read(file.get(), bytes_.data() + done, bytes_.size() - done);
      if (got < 0 && errno != EINTR) {
        return make_error(ErrorCode::io, "cannot read the secret key {}: {}", path,
                          errno_text(errno));
      }
      if (got == 0) {
        const std::string_view text(bytes_.data(), done);
        const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
        return line;
      }
      done += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return std::string_view();
  }

 private:
  std::array<char, kSecretFileBytes> bytes_{};
};

/// Opens a secret key file. Refuses it if other users could read it.
Result<UniqueFd> open_secret(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    return make_error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::not_found : ErrorCode::io,
                      "cannot open the secret key {}: {}", path, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument,
                      "the secret key {} is not a regular file: expected the file that 'cukiln "
                      "keygen -o FILE' writes",
                      path);
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0 ||
      (status.st_uid != ::geteuid() && status.st_uid != 0)) {
    return make_error(ErrorCode::invalid_argument,
                      "the secret key {} is not private to this user (mode {:o}, user {}): a user "
                      "who can read it "
                      "can sign for you; chmod 600 it, or make another one",
                      path, status.st_mode & 0777, status.st_uid);
  }
  return file;
}

bool contains(const std::vector<PublicKey>& keys, const PublicKey& key) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const PublicKey& one) { return one.bytes == key.bytes; });
}

}  // namespace

Result<PublicKey> PublicKey::parse(std::string_view text) {
  PublicKey key;
  if (!parse_key(text, key.name, key.bytes)) {
    // Shows the name only: the text may be a secret key, and errors end up in logs.
    const std::string_view name = text.substr(0, std::min(text.find(':'), kMaxShownLength));
    return make_error(
        ErrorCode::invalid_argument,
        "\"{}{}\" is not a public key: expected name:base64, as in the .pub file that "
        "'cukiln keygen' writes",
        name, name.size() == text.size() ? "" : "…");
  }
  return key;
}

std::string PublicKey::text() const { return key_text(name, bytes); }

bool PublicKey::verifies(ByteView message, const Signature& signature) const noexcept {
  return ::crypto_sign_verify_detached(signature.data(), bytes_of(message), message.size(),
                                       bytes.data()) == 0;
}

Result<SecretKey> SecretKey::generate(std::string_view name) {
  if (!is_key_name(name)) {
    return bad_name(name);
  }
  if (::sodium_init() < 0) {
    return Error(ErrorCode::internal, "libsodium found no source of random numbers");
  }
  SecretKey key;
  key.public_key_.name = name;
  ::crypto_sign_keypair(key.public_key_.bytes.data(), key.bytes_.data());
  return key;
}

Result<SecretKey> SecretKey::load(const std::string& path) {
  CUKILN_TRY(const UniqueFd file, open_secret(path));
  SecretText text;
  CUKILN_TRY(const std::string_view line, text.read(file, path));
  SecretKey key;
  if (!parse_key(line, key.public_key_.name, key.bytes_)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} does not contain a secret key: expected the file that 'cukiln keygen -o "
                      "FILE' writes (a public key, FILE.pub, cannot sign)",
                      path);
  }
  // Derive the key pair from the seed again: signatures of a damaged key would be rejected by all.
  std::array<std::uint8_t, crypto_sign_SEEDBYTES> seed{};
  SecretKey derived;
  ::crypto_sign_ed25519_sk_to_seed(seed.data(), key.bytes_.data());
  ::crypto_sign_seed_keypair(key.public_key_.bytes.data(), derived.bytes_.data(), seed.data());
  ::sodium_memzero(seed.data(), seed.size());
  if (derived.bytes_ != key.bytes_) {
    return make_error(ErrorCode::invalid_argument,
                      "the secret key {} is damaged: its halves do not match; restore it from a "
                      "backup, or make another one",
                      path);
  }
  return key;
}

SecretKey::~SecretKey() { ::sodium_memzero(bytes_.data(), bytes_.size()); }

Signature SecretKey::sign(ByteView message) const {
  Signature signature;
  ::crypto_sign_detached(signature.data(), nullptr, bytes_of(message), message.size(),
                         bytes_.data());
  return signature;
}

std::string SecretKey::text() const { return key_text(public_key_.name, bytes_); }

Result<TrustedKeys> TrustedKeys::parse(std::string_view list) {
  TrustedKeys keys;
  std::vector<std::string> revoked;
  std::vector<std::string> scoped;
  CUKILN_TRY(const std::vector<KeyLine> lines, read_key_list(list));
  for (const KeyLine& line : lines) {
    auto key = PublicKey::parse(line.key);
    if (!key) {
      return line.where.empty() ? std::move(key).error()
                                : std::move(key).error().with_context(line.where);
    }
    if (line.revoked) {
      revoked.push_back(key->text());
      keys.revoked_.push_back(*std::move(key));
      continue;
    }
    auto added = KeyLimits::parse(line.limits).and_then([&](KeyLimits limits) {
      if (!limits.modules.empty()) {
        scoped.push_back(line.key + " " + line.limits);
      }
      return keys.add_line({*std::move(key), std::move(limits)});
    });
    if (!added) {
      return line.where.empty() ? std::move(added).error()
                                : std::move(added).error().with_context(line.where);
    }
  }
  keys.revoked_texts_ = RevokedKeys(std::move(revoked));
  keys.scopes_ = KeyScopes(scoped);
  return keys;
}

Result<void> TrustedKeys::add_line(TrustedKey added) {
  for (const TrustedKey& other : trusted_) {
    if (other.key.bytes == added.key.bytes && other.limits != added.limits) {
      return make_error(ErrorCode::invalid_argument,
                        "the key \"{}\" is trusted twice, with different expires= or modules=: "
                        "keep one of the two",
                        added.key.name);
    }
    if (other.key == added.key) {
      return {};
    }
  }
  trusted_.push_back(std::move(added));
  return {};
}

void TrustedKeys::add(PublicKey key) {
  const bool is_trusted = std::any_of(trusted_.begin(), trusted_.end(), [&](const TrustedKey& one) {
    return one.key.bytes == key.bytes;
  });
  if (!is_trusted) {
    trusted_.push_back({std::move(key), {}});
  }
}

bool TrustedKeys::is_revoked(const PublicKey& key) const noexcept {
  return contains(revoked_, key);
}

std::size_t TrustedKeys::size() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(trusted_.begin(), trusted_.end(),
                    [&](const TrustedKey& one) { return !is_revoked(one.key); }));
}

KeyLimits TrustedKeys::limits_of(const PublicKey& key) const {
  const auto at = std::find_if(trusted_.begin(), trusted_.end(),
                               [&](const TrustedKey& one) { return one.key.bytes == key.bytes; });
  return at != trusted_.end() ? at->limits : KeyLimits();
}

TrustedKeys::Verdict TrustedKeys::verify(std::string_view name, ByteView message,
                                         const Signature& signature, std::int64_t now_s,
                                         TrustedKey& signer) const {
  Verdict verdict = Verdict::unknown_signer;
  for (const PublicKey& key : revoked_) {
    if (key.name == name) {
      verdict = Verdict::revoked;
    }
  }
  for (const TrustedKey& trusted : trusted_) {
    const PublicKey& key = trusted.key;
    if (key.name != name || is_revoked(key)) {
      continue;
    }
    if (key.verifies(message, signature)) {
      signer = trusted;
      return trusted.limits.hold_at(now_s) ? Verdict::good : Verdict::expired;
    }
    verdict = verdict == Verdict::revoked ? verdict : Verdict::bad_signature;
  }
  return verdict;
}

}  // namespace cukiln
