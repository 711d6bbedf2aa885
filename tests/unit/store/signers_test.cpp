// SPDX-License-Identifier: Apache-2.0
#include "store/signers.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

/// A key with these 32 bytes of its own.
std::string key_of(const std::string& name, char digit) {
  return name + ":" + std::string(42, digit) + "A=";
}

const std::string kFleet = key_of("fleet", 'f');
const std::string kOther = key_of("other", 'o');

}  // namespace

// fault 114
TEST_CASE("a chain has every signer once, the latest last") {
  CHECK(with_signer("", kFleet) == kFleet);
  const std::string both = with_signer(kFleet, kOther);
  CHECK(both == kFleet + " " + kOther);
  CHECK(split_signers(both) == std::vector<std::string>{kFleet, kOther});
  CHECK(with_signer(both, kFleet) == kOther + " " + kFleet);
  CHECK(split_signers("").empty());
}

// fault 115
TEST_CASE("an entry imported without a signature is unsigned until it is signed") {
  CHECK_FALSE(is_unsigned(""));  // compiled here
  CHECK(is_unsigned(with_signer("", kUnsigned)));
  CHECK(is_unsigned(with_signer(kFleet, kUnsigned)));
  CHECK_FALSE(is_unsigned(with_signer(kUnsigned, kFleet)));
  CHECK_FALSE(is_unsigned("so-unsigned"));
}

// fault 116
TEST_CASE("a revoked key is found anywhere in a chain, by its bytes") {
  const RevokedKeys revoked({kFleet});
  CHECK(revoked.any());
  CHECK(revoked.signed_any_of(kFleet));
  CHECK(revoked.signed_any_of(kFleet + " " + kOther));
  CHECK(revoked.signed_any_of(kOther + " " + kFleet));
  CHECK(revoked.signed_any_of(key_of("renamed", 'f')));
  CHECK_FALSE(revoked.signed_any_of(kOther));
  CHECK_FALSE(revoked.signed_any_of(key_of("fleet", 'x')));
  CHECK_FALSE(revoked.signed_any_of(kUnsigned));
  CHECK_FALSE(revoked.signed_any_of(""));
  CHECK_FALSE(RevokedKeys().signed_any_of(kFleet));
}

TEST_CASE("a public key is a name and the canonical base64 of 32 bytes") {
  CHECK(is_public_key(kFleet));
  CHECK_FALSE(is_public_key(kFleet + "A"));
  CHECK_FALSE(is_public_key("fleet"));
  CHECK_FALSE(is_public_key("fl eet:" + kFleet.substr(6)));
  CHECK_FALSE(is_public_key("fleet:" + std::string(42, 'f') + "B="));  // bits beyond the 32 bytes
  CHECK_FALSE(is_public_key("fleet:" + std::string(43, 'f') + "A"));
  CHECK_FALSE(is_public_key("fleet:" + std::string(88, 'f')));  // a secret one
}

// fault 112
TEST_CASE("a list of trusted keys revokes keys, and is refused if others may write it") {
  const ScratchFolder folder;
  const std::string list =
      folder.write("keys", "# ours\n" + kOther + "\n  revoked " + kFleet + "  # stolen\r\n");
  CHECK(*read_revoked_keys("") == std::vector<std::string>{});
  CHECK(*read_revoked_keys(kOther) == std::vector<std::string>{});
  CHECK(*read_revoked_keys(kOther + ", " + list) == std::vector<std::string>{kFleet});
  REQUIRE(::chmod(list.c_str(), 0666) == 0);
  const auto open = read_revoked_keys(list);
  REQUIRE_FALSE(open);
  CHECK(open.error().message().find("everybody may write it") != std::string::npos);
  const auto no_key = read_revoked_keys(folder.write("bad", "revoked nobody\n"));
  REQUIRE_FALSE(no_key);
  CHECK(no_key.error().message().find("name:base64") != std::string::npos);
  CHECK(read_revoked_keys(folder / "none").error().code() == ErrorCode::not_found);
}
