// SPDX-License-Identifier: Apache-2.0
// Blobs as objects: in bundles and remote stores.
#include <doctest/doctest.h>

#include <random>

#include "addons/fleet/bundle.hpp"
#include "addons/fleet/envelope.hpp"
#include "core/base/serial.hpp"
#include "core/store/blob_name.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

const SecretKey& owner() {
  static const SecretKey key = *SecretKey::generate("owner");
  return key;
}

StoreBlob blob_of(std::string kind, std::string key, std::string bytes) {
  return make_blob(std::move(kind), std::move(key), std::move(bytes), {}, 1'700'000'000);
}

ObjectName name_of_blob(const StoreBlob& blob) {
  return ObjectName::of(BlobName::id_of(blob.kind, blob.key));
}

TrustedKeys trust(const std::string& list) { return *TrustedKeys::parse(list); }

/// Why an object is not taken as the blob `wanted`.
Rejection refusal(ByteView bytes, const StoreBlob& wanted, const TrustedKeys& keys) {
  Rejection why = Rejection::none;
  const ObjectName name = name_of_blob(wanted);
  const auto opened = open_blob(bytes, {&keys, &name}, why);
  CHECK(opened.has_value() == (why == Rejection::none));
  return why;
}

std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(7);
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

}  // namespace

TEST_CASE("a blob of any size and key round-trips with its signers") {
  const TrustedKeys keys = trust(owner().public_key().text());
  for (const StoreBlob& blob :
       {blob_of("triton", "KEY/add.cubin", ""), blob_of("k", "k", std::string("\0\xff", 2)),
        blob_of(std::string(kMaxBlobKindBytes, 'K'), std::string(kMaxBlobKeyBytes, '\xfe'),
                random_bytes(70'000)),
        blob_of("cuda.core", std::string("a\0b", 3), std::string(1 << 20, 'x'))}) {
    const ObjectName name = name_of_blob(blob);
    Rejection why = Rejection::none;
    const auto opened = open_blob(seal_blob(blob, &owner()), {&keys, &name}, why);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message());
    CHECK(opened->kind == blob.kind);
    CHECK(opened->key == blob.key);
    CHECK(opened->bytes == blob.bytes);
    CHECK(opened->created_s == blob.created_s);
    CHECK(opened->signer == owner().public_key().text());
    CHECK(open_blob(seal_blob(blob, nullptr), {}, why)->signer == kUnsigned);
    StoreBlob again = *opened;
    const SecretKey other = *SecretKey::generate("other");
    const TrustedKeys others = trust(other.public_key().text());
    CHECK(open_blob(seal_blob(again, &other), {&others, nullptr}, why)->signer ==
          owner().public_key().text() + " " + other.public_key().text());
  }
}

TEST_CASE("fault 280: a sealed blob with a flipped bit anywhere, or cut anywhere, is rejected") {
  const TrustedKeys keys = trust(owner().public_key().text());
  const StoreBlob blob = blob_of("triton", "KEY/add.cubin", random_bytes(200));
  const std::string good = seal_blob(blob, &owner());
  REQUIRE(refusal(good, blob, keys) == Rejection::none);
  for (std::size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    for (const int bit : {0, 5}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      CHECK(refusal(bad, blob, keys) != Rejection::none);
    }
    CHECK(refusal(good.substr(0, i), blob, keys) != Rejection::none);
  }
  CHECK(refusal(good + "x", blob, keys) == Rejection::malformed);
}

TEST_CASE("fault 280: a sealed blob is no other key's, no other kind's and no entry") {
  const TrustedKeys keys = trust(owner().public_key().text());
  const StoreBlob blob = blob_of("triton", "KEY/add.cubin", "bytes");
  const std::string sealed = seal_blob(blob, &owner());
  CHECK(refusal(sealed, blob_of("triton", "KEY/sub.cubin", "bytes"), keys) ==
        Rejection::wrong_name);
  CHECK(refusal(sealed, blob_of("inductor", "KEY/add.cubin", "bytes"), keys) ==
        Rejection::wrong_name);
  // A kind ends where the key begins, whatever the key is.
  CHECK(name_of_blob(blob_of("a", "bc", "")) != name_of_blob(blob_of("ab", "c", "")));
  CHECK(name_of_blob(blob_of("a", std::string("\0b", 2), "")) !=
        name_of_blob(blob_of("a", "b", "")));

  Rejection why = Rejection::none;
  CHECK_FALSE(open_entry(sealed, {&keys, nullptr}, why));
  CHECK(why == Rejection::bad_payload);
  const StoreEntry entry = make_entry(1);
  const std::string sealed_entry = seal_entry(entry, &owner(), false);
  CHECK_FALSE(open_blob(sealed_entry, {&keys, nullptr}, why));
  // Even a signer cannot put one blob, or an entry, into another's envelope.
  const auto payload_of = [&](const std::string& object) {
    return open_envelope(object, {}, why)->payload;
  };
  EnvelopeHead head;
  head.name = name_of_blob(blob_of("triton", "KEY/sub.cubin", ""));
  CHECK_FALSE(open_blob(seal_envelope(head, payload_of(sealed), &owner()), {&keys, nullptr}, why));
  CHECK(why == Rejection::wrong_name);
  head.name = ObjectName::of(entry.key);
  CHECK_FALSE(open_entry(seal_envelope(head, payload_of(sealed), &owner()), {&keys, nullptr}, why));
  CHECK(why == Rejection::bad_payload);
  head.name = name_of_blob(blob);
  CHECK_FALSE(
      open_blob(seal_envelope(head, payload_of(sealed_entry), &owner()), {&keys, nullptr}, why));
  // With a target it would look like an entry in an inventory of a server.
  head.target = "sm_90a";
  CHECK_FALSE(open_blob(seal_envelope(head, payload_of(sealed), &owner()), {&keys, nullptr}, why));
  CHECK(why == Rejection::bad_payload);
}

TEST_CASE("fault 280: a signed blob with a kind, key or list of signers that none may have") {
  const TrustedKeys keys = trust(owner().public_key().text());
  const auto sealed = [&](ByteView kind, ByteView key, const std::vector<std::string>& signers) {
    EnvelopeHead head;
    head.name = ObjectName::of(BlobName::id_of(kind, key));
    const std::string payload = SerialWriter()
                                    .bytes(kind)
                                    .bytes("")
                                    .bytes(key)
                                    .bytes("")
                                    .strings(signers)
                                    .bytes("")
                                    .raw("bytes")
                                    .take();
    return seal_envelope(head, payload, &owner());
  };
  const auto refused_for = [&](const std::string& object) {
    Rejection why = Rejection::none;
    CHECK_FALSE(open_blob(object, {&keys, nullptr}, why));
    return why;
  };
  Rejection why = Rejection::none;
  CHECK(open_blob(sealed("k", "key", {}), {&keys, nullptr}, why)->bytes == "bytes");
  CHECK(refused_for(sealed("", "key", {})) == Rejection::bad_payload);
  CHECK(refused_for(sealed("a kind", "key", {})) == Rejection::bad_payload);
  CHECK(refused_for(sealed(std::string(65, 'k'), "key", {})) == Rejection::bad_payload);
  CHECK(refused_for(sealed("k", "", {})) == Rejection::bad_payload);
  CHECK(refused_for(sealed("k", std::string(1 << 20, 'k'), {})) == Rejection::bad_payload);
  CHECK(refused_for(sealed("k", "key", std::vector<std::string>(40, "k:AAAA"))) ==
        Rejection::bad_payload);
  CHECK(refused_for(sealed("k", "key", {"\x1b[31mfleet"})) == Rejection::bad_payload);
  EnvelopeHead head;
  head.name = ObjectName::of(BlobName::id_of("k", "key"));
  for (const std::string& cut : {std::string(), SerialWriter().u32(~0u).take(),
                                 SerialWriter().bytes("k").bytes("").bytes("key").u32(1).take()}) {
    CHECK(refused_for(seal_envelope(head, cut, &owner())) == Rejection::bad_payload);
  }
}

TEST_CASE("fault 281: only a key that is trusted for all modules signs blobs") {
  const StoreBlob blob = blob_of("triton", "KEY/add.cubin", "bytes");
  const std::string text = owner().public_key().text();
  const std::string sealed = seal_blob(blob, &owner());
  Rejection why = Rejection::none;
  OpenRules rules;
  const TrustedKeys scoped = trust(text + " modules=triton");  // also what the kind begins with
  rules.trusted = &scoped;
  const auto refused = open_blob(sealed, rules, why);
  REQUIRE_FALSE(refused);
  CHECK(why == Rejection::out_of_scope);
  CHECK(refused.error().message().find("has no modules=") != std::string::npos);
  rules.insecure = true;
  CHECK_FALSE(open_blob(sealed, rules, why));
  // Another key signs it again: the scope of the first one stays.
  const SecretKey other = *SecretKey::generate("other");
  const TrustedKeys wide = trust(text);
  const StoreBlob passed = *open_blob(sealed, {&wide, nullptr}, why);
  const TrustedKeys both = trust(text + " modules=triton," + other.public_key().text());
  CHECK_FALSE(open_blob(seal_blob(passed, &other), {&both, nullptr}, why));
  CHECK(why == Rejection::out_of_scope);
  CHECK(open_blob(seal_blob(blob, &other), {&both, nullptr}, why).has_value());
}

TEST_CASE("fault 282: a blob of an unknown, expired or revoked key, or of none, is rejected") {
  const ScratchFolder folder;
  const StoreBlob blob = blob_of("triton", "KEY/add.cubin", "bytes");
  const std::string text = owner().public_key().text();
  const std::string sealed = seal_blob(blob, &owner());
  const SecretKey stranger = *SecretKey::generate("stranger");
  const SecretKey namesake = *SecretKey::generate("owner");
  const TrustedKeys keys = trust(text);
  CHECK(refusal(seal_blob(blob, &stranger), blob, keys) == Rejection::unknown_signer);
  CHECK(refusal(seal_blob(blob, &namesake), blob, keys) == Rejection::bad_signature);
  CHECK(refusal(seal_blob(blob, nullptr), blob, keys) == Rejection::no_signature);
  CHECK(refusal(sealed, blob, trust(text + " expires=2026-01-02")) == Rejection::expired_signer);
  const auto revoking = [&](const std::string& key) {
    return trust(folder.write("keys", text + "\nrevoked " + key + "\n"));
  };
  CHECK(refusal(sealed, blob, revoking(text)) == Rejection::revoked_signer);
  Rejection why = Rejection::none;
  const TrustedKeys revoked = revoking(text);
  CHECK_FALSE(open_blob(sealed, {&revoked, nullptr, true}, why));  // nor by --insecure
  // Among the earlier signers.
  StoreBlob passed = blob;
  passed.signer = stranger.public_key().text();
  CHECK(refusal(seal_blob(passed, &owner()), blob, keys) == Rejection::none);
  CHECK(refusal(seal_blob(passed, &owner()), blob, revoking(stranger.public_key().text())) ==
        Rejection::revoked_signer);
}

TEST_CASE("fault 283: blobs near their limit, which do not compress, are sealed and opened") {
  const TrustedKeys keys = trust(owner().public_key().text());
  Rejection why = Rejection::none;
  // Larger than an object of a remote store.
  const std::string bytes = random_bytes((64 << 20) + 8);
  const std::string sealed = seal_blob(blob_of("k", "key", bytes), &owner());
  CHECK(sealed.size() > kMaxEnvelopeBytes);
  CHECK(open_blob(sealed, {&keys, nullptr}, why)->bytes == bytes);
  // An entry keeps its limit.
  CHECK_FALSE(open_entry(sealed, {&keys, nullptr}, why));
  CHECK(why == Rejection::oversize);
}

TEST_CASE("fault 283: the largest blob is taken, and a larger one, or claim, is not") {
  const TrustedKeys keys = trust(owner().public_key().text());
  Rejection why = Rejection::none;
  StoreBlob blob = blob_of("k", std::string(kMaxBlobKeyBytes, 'k'), std::string(kMaxBlobBytes, 0));
  const auto largest = open_blob(seal_blob(blob, &owner()), {&keys, nullptr}, why);
  REQUIRE(largest);
  CHECK(largest->bytes.size() == kMaxBlobBytes);
  blob.bytes = SharedBytes(std::string(kMaxBlobBytes + 1, 0));
  CHECK_FALSE(open_blob(seal_blob(blob, &owner()), {&keys, nullptr}, why));
  CHECK(why == Rejection::bad_payload);
  // Claims, in the header: nothing is allocated for them.
  const std::string small = seal_blob(blob_of("k", "key", "bytes"), nullptr);
  constexpr std::size_t kStoredOffset = 4 + 1;
  for (const std::size_t offset : {kStoredOffset, kStoredOffset + 8}) {
    std::string claim = small;
    claim.replace(offset, 8, SerialWriter().u64(kMaxSealedBlobBytes + 1).view());
    CHECK_FALSE(open_blob(claim, {}, why));
    CHECK(why == Rejection::oversize);
  }
}
