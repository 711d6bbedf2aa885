// SPDX-License-Identifier: Apache-2.0
#include "remote/keys.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;
using Verdict = TrustedKeys::Verdict;

namespace {

std::string save(const ScratchFolder& folder, const SecretKey& key, mode_t mode = 0600) {
  const std::string path = folder.write(key.public_key().name, key.text() + "\n");
  ::chmod(path.c_str(), mode);
  return path;
}

Verdict verify(const TrustedKeys& keys, const SecretKey& by, std::string_view message) {
  PublicKey signer;
  const Verdict verdict = keys.verify(by.public_key().name, message, by.sign("a message"), signer);
  CHECK((verdict == Verdict::good) == (signer == by.public_key()));
  return verdict;
}

}  // namespace

TEST_CASE("a key round-trips through its file") {
  const ScratchFolder folder;
  const SecretKey key = *SecretKey::generate("fleet-1");
  const SecretKey again = *SecretKey::load(save(folder, key));
  CHECK(again.text() == key.text());
  CHECK(again.public_key() == key.public_key());
  CHECK(*PublicKey::parse(key.public_key().text()) == key.public_key());
  CHECK(key.public_key().verifies("text", again.sign("text")));
  CHECK_FALSE(key.public_key().verifies("texT", again.sign("text")));
  CHECK(SecretKey::generate("fleet-1")->text() != key.text());
}

TEST_CASE("a secret key that others may read is refused") {
  const ScratchFolder folder;
  const SecretKey key = *SecretKey::generate("open");
  for (const mode_t mode : {0640, 0604, 0620}) {
    const auto loaded = SecretKey::load(save(folder, key, mode));
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().code() == ErrorCode::invalid_argument);
    CHECK(loaded.error().message().find("chmod 600") != std::string::npos);
  }
  CHECK(SecretKey::load(save(folder, key, 0400)).has_value());
  CHECK(SecretKey::load(folder / "none").error().code() == ErrorCode::not_found);
}

// fault 113
TEST_CASE("the secret key that is checked is the one that is read, even if the file is replaced") {
  const ScratchFolder folder;
  const SecretKey own = *SecretKey::generate("own");
  const SecretKey open = *SecretKey::generate("open");
  const std::string path = save(folder, own);
  const std::string other = folder.write("other", open.text());
  ::chmod(other.c_str(), 0644);
  std::atomic<bool> stop{false};
  std::thread swapping([&] {
    while (!stop) {
      ::syscall(SYS_renameat2, AT_FDCWD, path.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
    }
  });
  int loaded = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto key = SecretKey::load(path);
    if (key) {
      ++loaded;
      CHECK(key->public_key() == own.public_key());
    }
  }
  stop = true;
  swapping.join();
  CHECK(loaded > 0);
}

// fault 112
TEST_CASE("a list of trusted keys that others may write is refused") {
  const ScratchFolder folder;
  const std::string key = SecretKey::generate("k")->public_key().text();
  const std::string list = folder.write("keys", key + "\n");
  CHECK(TrustedKeys::parse(list)->size() == 1);
  ::chmod(list.c_str(), 0666);
  const auto refused = TrustedKeys::parse(list);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::invalid_argument);
  CHECK(refused.error().message().find("chmod go-w " + list) != std::string::npos);
}

TEST_CASE("a malformed key is refused with the expected form") {
  const ScratchFolder folder;
  const std::string good = SecretKey::generate("k")->public_key().text();
  for (const std::string& text :
       {std::string("k"), std::string("k:"), good + "=", good + "A",
        good.substr(0, good.size() - 2), good.substr(1), "a b" + good.substr(1),
        std::string(65, 'k') + good.substr(1), "k:" + std::string(44, '!')}) {
    CAPTURE(text);
    CHECK_FALSE(PublicKey::parse(text).has_value());
  }
  std::string damaged = SecretKey::generate("k")->text();
  damaged[10] = damaged[10] == 'A' ? 'B' : 'A';
  const std::string secret = folder.write("damaged", damaged);
  ::chmod(secret.c_str(), 0600);
  CHECK(SecretKey::load(secret).error().message().find("is damaged") != std::string::npos);
  const std::string path = folder.write("public", good);
  ::chmod(path.c_str(), 0600);
  CHECK(SecretKey::load(path).error().message().find("cannot sign") != std::string::npos);
  CHECK_FALSE(SecretKey::generate("with space").has_value());
}

TEST_CASE("a signature is verified with keys of its name only") {
  const SecretKey fleet = *SecretKey::generate("fleet");
  const SecretKey namesake = *SecretKey::generate("fleet");
  const SecretKey other = *SecretKey::generate("other");
  TrustedKeys keys = *TrustedKeys::parse(fleet.public_key().text());
  CHECK(verify(keys, fleet, "a message") == Verdict::good);
  CHECK(verify(keys, fleet, "another") == Verdict::bad_signature);
  CHECK(verify(keys, namesake, "a message") == Verdict::bad_signature);
  CHECK(verify(keys, other, "a message") == Verdict::unknown_signer);
  // A new key under the old name: both are believed while the fleet changes over.
  keys.add(namesake.public_key());
  CHECK(verify(keys, fleet, "a message") == Verdict::good);
  CHECK(verify(keys, namesake, "a message") == Verdict::good);
  CHECK(verify(TrustedKeys(), fleet, "a message") == Verdict::unknown_signer);
}

TEST_CASE("lists have keys, files, comments and revocations") {
  const ScratchFolder folder;
  const SecretKey a = *SecretKey::generate("a");
  const SecretKey b = *SecretKey::generate("b");
  const SecretKey c = *SecretKey::generate("c");
  const std::string file =
      folder.write("keys", "# the fleet's\n\n  " + b.public_key().text() +
                               "  # since May\r\nrevoked " + c.public_key().text() + "\n");
  const TrustedKeys keys =
      *TrustedKeys::parse(a.public_key().text() + " , " + file + "," + c.public_key().text());
  CHECK(keys.size() == 3);
  CHECK(verify(keys, a, "a message") == Verdict::good);
  CHECK(verify(keys, b, "a message") == Verdict::good);
  CHECK(verify(keys, c, "a message") == Verdict::revoked);  // wherever it is trusted besides
  CHECK(keys.revoked().signed_any_of(c.public_key().text()));
  CHECK_FALSE(keys.revoked().signed_any_of(a.public_key().text()));
  CHECK_FALSE(keys.revoked().signed_any_of(""));
  CHECK(TrustedKeys::parse("")->empty());
  CHECK(TrustedKeys::parse("/no/such/file").error().code() == ErrorCode::not_found);
  const auto bad = TrustedKeys::parse(folder.write("bad", "nonsense\n"));
  REQUIRE_FALSE(bad);
  CHECK(bad.error().message().find("nonsense") != std::string::npos);
  CHECK(bad.error().message().find(folder / "bad") != std::string::npos);
}
