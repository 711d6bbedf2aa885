// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/keys.hpp"

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

constexpr std::int64_t kNow = 1'801'440'000;  // 2027-02-01
constexpr std::int64_t kDay = 86'400;

Verdict verify(const TrustedKeys& keys, const SecretKey& by, std::string_view message,
               std::int64_t now_s = kNow) {
  TrustedKey signer;
  const Verdict verdict =
      keys.verify(by.public_key().name, message, by.sign("a message"), now_s, signer);
  CHECK((verdict == Verdict::good || verdict == Verdict::expired) ==
        (signer.key == by.public_key()));
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

// fault 371
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

// fault 405
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
  CHECK(keys.size() == 2);  // without the revoked one
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

TEST_CASE(
    "fault 140: a key is trusted until the day of its expiry begins, by a clock that was set") {
  const SecretKey key = *SecretKey::generate("fleet");
  const TrustedKeys keys = *TrustedKeys::parse(key.public_key().text() + " expires=2027-02-02");
  CHECK(verify(keys, key, "a message", kNow) == Verdict::good);
  CHECK(verify(keys, key, "a message", kNow + kDay - 1) == Verdict::good);
  CHECK(verify(keys, key, "a message", kNow + kDay) == Verdict::expired);
  CHECK(verify(keys, key, "another", kNow + kDay) == Verdict::bad_signature);
  CHECK(verify(keys, key, "a message", 0) == Verdict::expired);  // 1970
  const TrustedKeys unlimited = *TrustedKeys::parse(key.public_key().text());
  CHECK(verify(unlimited, key, "a message", 0) == Verdict::good);
}

TEST_CASE("fault 140: a key that is revoked and has expired is revoked") {
  const ScratchFolder folder;
  const SecretKey key = *SecretKey::generate("fleet");
  const std::string text = key.public_key().text();
  const TrustedKeys keys = *TrustedKeys::parse(
      folder.write("keys", text + " expires=2027-01-01\nrevoked " + text + "\n"));
  CHECK(verify(keys, key, "a message") == Verdict::revoked);
}

// fault 140, fault 141
TEST_CASE("a key that is listed twice has the same limits, under whatever name") {
  const ScratchFolder folder;
  const std::string text = SecretKey::generate("fleet")->public_key().text();
  const std::string renamed = "other" + text.substr(text.find(':'));
  const std::string limited = text + " expires=2027-02-02 modules=nvfp4_";
  CHECK(TrustedKeys::parse(limited + "," + limited)->size() == 1);
  for (const std::string& other : {text, renamed, text + " expires=2027-02-02"}) {
    CAPTURE(other);
    const std::string file = folder.write("keys", limited + "\n" + other + "\n");
    const auto refused = TrustedKeys::parse(file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find(file) == 0);
    CHECK(refused.error().message().find("trusted twice") != std::string::npos);
  }
  // What a machine trusts besides the list does not lift the list's limits.
  TrustedKeys keys = *TrustedKeys::parse(limited);
  keys.add(*PublicKey::parse(text));
  keys.add(*PublicKey::parse(renamed));
  CHECK(keys.size() == 1);
  CHECK(keys.limits_of(*PublicKey::parse(text)).text() == "expires=2027-02-02 modules=nvfp4_");
  CHECK(keys.limits_of(SecretKey::generate("fleet")->public_key()) == KeyLimits());
}

TEST_CASE("limits that cannot be read refuse the list, and show no secret") {
  const ScratchFolder folder;
  const SecretKey key = *SecretKey::generate("fleet");
  const std::string text = key.public_key().text();
  const std::string secret = key.text().substr(key.text().find(':') + 1);
  for (const std::string& limits :
       {std::string("until=2027-02-02"), std::string("expires="), std::string("modules="),
        std::string("expires=2027-02-30"), secret}) {
    const std::string file = folder.write("keys", text + " " + limits + "\n");
    const auto refused = TrustedKeys::parse(file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::invalid_argument);
    CHECK(refused.error().message().find(file) == 0);
    CHECK(refused.error().message().find("expected") != std::string::npos);
    CHECK(refused.error().message().find(secret.substr(0, 8)) == std::string::npos);
  }
}
