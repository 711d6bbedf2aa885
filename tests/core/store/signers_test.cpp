// SPDX-License-Identifier: Apache-2.0
#include "core/store/signers.hpp"

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
TEST_CASE(
    "fault 407: only the first signer of an entry, as the only one, vouches for its toolkit") {
  const std::string mark(kOwnToolkit);
  const std::string key = "a:" + std::string(43, 'A') + "=";
  const std::string other = "b:" + std::string(43, 'B') + "g=";
  CHECK(vouches_for_toolkit(mark + " " + key));
  for (const std::string& chain :
       {std::string(), mark, key, mark + " unsigned", mark + " " + key + " " + other,
        mark + " unsigned " + key, key + " " + mark, mark + " " + mark + " " + key,
        mark + " " + key + " " + mark, mark + "x " + key, mark + key}) {
    CAPTURE(chain);
    CHECK_FALSE(vouches_for_toolkit(chain));
  }
  // Signed again: another signer does not know what the first one's toolkit was.
  CHECK_FALSE(vouches_for_toolkit(with_signer(mark + " " + key, other)));
  CHECK_FALSE(vouches_for_toolkit(with_signer(with_signer(mark + " " + key, kUnsigned), key)));
  CHECK(without_mark(mark + " " + key) == key);
  CHECK(without_mark(mark).empty());
  CHECK(without_mark(key) == key);
  // The mark is no signer: no scope is for it, and no revocation.
  CHECK(KeyScopes({"a:no-key modules=x"}).cover(mark, "demo"));
}

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

// fault 405
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

// fault 406
TEST_CASE("limits of a key round-trip, and a day begins in UTC") {
  CHECK(KeyLimits::parse("")->text().empty());
  const KeyLimits limits =
      *KeyLimits::parse(" expires=2027-01-31\t modules=nvfp4_  modules=sampler ");
  CHECK(limits.text() == "expires=2027-01-31 modules=nvfp4_ modules=sampler");
  CHECK(*KeyLimits::parse(limits.text()) == limits);
  CHECK(limits.expires_s == 1'801'353'600);
  CHECK(date_text(1'801'353'599) == "2027-01-30");
  CHECK(date_text(-1) == "1969-12-31");
  CHECK(limits.hold_at(1'801'353'599));
  CHECK_FALSE(limits.hold_at(1'801'353'600));
  CHECK_FALSE(limits.hold_at(0));  // a clock that was never set proves nothing
  CHECK(KeyLimits().hold_at(0));
  CHECK(KeyLimits().cover(""));
  CHECK(limits.cover("nvfp4_gemm"));
  CHECK(limits.cover("sampler"));
  CHECK_FALSE(limits.cover("nvfp4"));
  CHECK_FALSE(limits.cover("my_nvfp4_gemm"));
  CHECK_FALSE(limits.cover(""));
}

TEST_CASE("limits that make no sense are refused with the expected form") {
  for (const char* const text :
       {"expires=2027-1-31", "expires=2027-02-29", "expires=2027-01-31T00:00", "expires=tomorrow",
        "expires=2027-01-31 expires=2027-01-31", "expires=2027/01/31", "expires=2027-13-01"}) {
    CAPTURE(text);
    const auto refused = KeyLimits::parse(text);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("expires=2027-01-31") != std::string::npos);
  }
  for (const char* const text :
       {"modules=", "modules=nvfp4_*", "modules=a,b", "modules=a\r modules=b"}) {
    CAPTURE(text);
    const auto refused = KeyLimits::parse(text);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("repeat modules=") != std::string::npos);
  }
  for (const char* const text : {"Expires=2027-01-31", "x", "expires"}) {
    CAPTURE(text);
    CHECK_FALSE(KeyLimits::parse(text));
  }
}

// fault 406
TEST_CASE(
    "a scope binds what its key signed, by the key's bytes, although others signed it since") {
  const KeyScopes scopes({kFleet + " modules=nvfp4_ modules=sampler"});
  CHECK(scopes.cover(kFleet, "nvfp4_gemm"));
  CHECK(scopes.cover(kOther + " " + kFleet, "sampler"));
  CHECK_FALSE(scopes.cover(kFleet, "attention"));
  CHECK_FALSE(scopes.cover(kOther + " " + kFleet, "attention"));
  CHECK_FALSE(scopes.cover(key_of("renamed", 'f'), "attention"));
  CHECK_FALSE(scopes.cover(kFleet + " " + kOther, "attention"));
  CHECK_FALSE(scopes.cover(kFleet + " " + std::string(kUnsigned), "attention"));
  CHECK(scopes.cover(kOther, "attention"));
  CHECK(scopes.cover("", "attention"));  // compiled here
  CHECK(KeyScopes().cover(kFleet, "attention"));
  // Two scopes of one key: the narrower. What cannot be read covers nothing.
  CHECK_FALSE(KeyScopes({kFleet + " modules=a", kFleet + " modules=ab"}).cover(kFleet, "a"));
  CHECK_FALSE(KeyScopes({kFleet + " nonsense"}).cover(kFleet, "a"));
}

// fault 406
TEST_CASE("a list of trusted keys has scopes; limits do not hide what it revokes") {
  const ScratchFolder folder;
  const std::string list =
      folder.write("keys", kOther + " expires=2027-01-31 modules=nvfp4_ # until then\n" +
                               key_of("third", 't') + " expires=2027-01-31\nrevoked " + kFleet);
  CHECK(*read_scoped_keys(list) == std::vector<std::string>{kOther + " modules=nvfp4_"});
  CHECK(*read_revoked_keys(list) == std::vector<std::string>{kFleet});
  const std::string bad = folder.write("bad", kOther + " module=nvfp4_\nrevoked " + kFleet + "\n");
  CHECK(*read_scoped_keys(bad) == std::vector<std::string>{kOther + " module=nvfp4_"});
  CHECK_FALSE(KeyScopes(*read_scoped_keys(bad)).cover(kOther, "nvfp4_gemm"));
  CHECK(*read_revoked_keys(bad) == std::vector<std::string>{kFleet});
  CHECK_FALSE(read_revoked_keys(folder.write("late", "revoked " + kFleet + " expires=2027-01-31")));
}
