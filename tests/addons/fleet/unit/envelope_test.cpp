// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/envelope.hpp"

#include <doctest/doctest.h>
#include <zstd.h>

#include <cstring>

#include "core/base/serial.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

const SecretKey& fleet() {
  static const SecretKey key = *SecretKey::generate("fleet");
  return key;
}

TrustedKeys trusting(const SecretKey& key) {
  TrustedKeys keys;
  keys.add(key.public_key());
  return keys;
}

ObjectName name_of_entry(const StoreEntry& entry) {
  return ObjectName::of(cache_key_of(entry.request_canonical, entry.dependencies.canonical()));
}

/// Why an object is not taken as the entry `wanted`.
Rejection rejection_of(ByteView bytes, const StoreEntry& wanted, const TrustedKeys& keys) {
  Rejection why = Rejection::none;
  const ObjectName name = name_of_entry(wanted);
  const auto opened = open_entry(bytes, {&keys, &name}, why);
  CHECK(opened.has_value() == (why == Rejection::none));
  return why;
}

/// Header and payload of one's own choice, as a signer could make them.
struct Forged {
  std::string magic = "CKE6";
  std::uint8_t codec = 0;
  std::string payload = "payload";
  std::uint64_t stored_bytes = payload.size();
  std::uint64_t raw_bytes = payload.size();
  ObjectName name;
  std::string target = "sm_100a";
  std::string signer = "fleet";

  std::string bytes(const SecretKey& key) const {
    SerialWriter out;
    out.raw(magic).u8(codec).u64(stored_bytes).u64(raw_bytes);
    out.raw(view_of(name)).raw(view_of(hash_of(payload))).u64(0);
    out.bytes(target).bytes("nvrtc 13.0.88").bytes(signer);
    const Signature signature = key.sign(out.view());
    out.raw({reinterpret_cast<const char*>(signature.data()), signature.size()}).raw(payload);
    return out.take();
  }
};

constexpr std::size_t kNameOffset = 4 + 1 + 8 + 8;

}  // namespace

TEST_CASE("an entry round-trips") {
  const TrustedKeys keys = trusting(fleet());
  for (const std::size_t size : {std::size_t{0}, std::size_t{20'000}}) {
    StoreEntry entry = make_entry(1, {size});
    entry.created_s = 1'700'000'000;
    const ObjectName name = name_of_entry(entry);
    Rejection why = Rejection::none;
    const auto opened = open_entry(seal_entry(entry, &fleet(), true), {&keys, &name}, why);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message());
    CHECK(opened->signer == fleet().public_key().text());
    CHECK(opened->source_text == entry.source_text);
    CHECK(opened->compile_us == entry.compile_us);
    CHECK(opened->created_s == entry.created_s);
    entry.signer = opened->signer;
    CHECK(same_content(*opened, entry));
  }
}

// fault 114
TEST_CASE("an object keeps the earlier signers of its entry") {
  const SecretKey first = *SecretKey::generate("first");
  const SecretKey second = *SecretKey::generate("second");
  TrustedKeys keys = trusting(fleet());
  Rejection why = Rejection::none;
  StoreEntry entry = make_entry(1);
  for (const SecretKey* key : {&first, &second}) {
    const TrustedKeys own = trusting(*key);
    entry = *open_entry(seal_entry(entry, key, false), {&own, nullptr}, why);
  }
  const std::string chain = first.public_key().text() + " " + second.public_key().text();
  CHECK(entry.signer == chain);
  const std::string sealed = seal_entry(entry, &fleet(), false);
  const auto opened = open_entry(sealed, {&keys, nullptr}, why);
  REQUIRE(opened);
  CHECK(opened->signer == chain + " " + fleet().public_key().text());
  // Signed again by one of them: each is there once.
  const TrustedKeys own = trusting(first);
  CHECK(open_entry(seal_entry(entry, &first, false), {&own, nullptr}, why)->signer ==
        second.public_key().text() + " " + first.public_key().text());
  // Opened without checking the signature: recorded as unsigned.
  CHECK(open_entry(sealed, {}, why)->signer == chain + " unsigned");
  CHECK(open_entry(seal_entry(make_entry(1), nullptr, false), {}, why)->signer == "unsigned");
}

TEST_CASE(
    "fault 347: the signature of the process that compiled vouches for its toolkit, no other") {
  const SecretKey other = *SecretKey::generate("other");
  const TrustedKeys keys = trusting(fleet());
  const TrustedKeys others = trusting(other);
  Rejection why = Rejection::none;
  StoreEntry own = make_entry(1);
  CHECK(own.may_trust_toolkit());  // this store compiled it
  const auto passed_on = [&](const StoreEntry& entry, const SecretKey* key, const TrustedKeys* to) {
    StoreEntry opened = *open_entry(seal_entry(entry, key, true), {to, nullptr}, why);
    opened.origin = Origin::imported;
    return opened;
  };
  CHECK_FALSE(passed_on(own, &fleet(), &keys).may_trust_toolkit());  // with whatever headers
  own.signer = kOwnToolkit;
  CHECK(own.may_trust_toolkit());
  const StoreEntry vouched = passed_on(own, &fleet(), &keys);
  CHECK(vouched.may_trust_toolkit());
  CHECK(passed_on(vouched, &fleet(), &keys).may_trust_toolkit());
  CHECK_FALSE(passed_on(vouched, &other, &others).may_trust_toolkit());
  const StoreEntry unsigned_one = passed_on(own, nullptr, nullptr);
  CHECK_FALSE(unsigned_one.may_trust_toolkit());
  CHECK_FALSE(passed_on(own, &other, nullptr).may_trust_toolkit());  // no signature was checked
  CHECK_FALSE(passed_on(unsigned_one, &fleet(), &keys).may_trust_toolkit());
  // What another one claims to have had from the fleet.
  own.signer = std::string(kOwnToolkit) + " " + fleet().public_key().text();
  const StoreEntry forged = passed_on(own, nullptr, nullptr);
  CHECK_FALSE(forged.may_trust_toolkit());
  CHECK_FALSE(passed_on(forged, &fleet(), &keys).may_trust_toolkit());
}

TEST_CASE("fault 73: a revoked key is found among the earlier signers") {
  const ScratchFolder folder;
  const SecretKey stolen = *SecretKey::generate("stolen");
  const std::string good = fleet().public_key().text();
  const std::string bad = stolen.public_key().text();
  Rejection why = Rejection::none;
  const TrustedKeys both = *TrustedKeys::parse(good + "," + bad);
  const StoreEntry entry =
      *open_entry(seal_entry(make_entry(1), &stolen, false), {&both, nullptr}, why);
  const std::string again = seal_entry(entry, &fleet(), false);
  CHECK(open_entry(again, {&both, nullptr}, why).has_value());
  const TrustedKeys now =
      *TrustedKeys::parse(folder.write("keys", good + "\n" + bad + "\nrevoked " + bad + "\n"));
  const auto refused = open_entry(again, {&now, nullptr}, why);
  REQUIRE_FALSE(refused);
  CHECK(why == Rejection::revoked_signer);
}

TEST_CASE("an entry with an unbounded or malformed list of signers is refused") {
  const TrustedKeys keys = trusting(fleet());
  StoreEntry entry = make_entry(1);
  for (int i = 0; i < 40; ++i) {
    entry.signer += "k" + std::to_string(i) + ":AAAA ";
  }
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, keys) == Rejection::bad_payload);
  entry.signer = std::string(200, 'k');
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, keys) == Rejection::bad_payload);
  entry.signer = "\x1b[31mfleet";
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, keys) == Rejection::bad_payload);
}

TEST_CASE("source texts are not exported unless requested") {
  StoreEntry entry = make_entry(1);
  entry.source_text = "int secret_source;";
  Rejection why = Rejection::none;
  const auto opened = open_entry(seal_entry(entry, &fleet(), false), {}, why);
  REQUIRE(opened);
  CHECK(opened->source_text.empty());
}

TEST_CASE("sets round-trip, the most recent first, as many as fit") {
  FleetSets sets;
  for (std::uint64_t variant = 0; variant < 6; ++variant) {
    const StoreEntry entry = make_entry(1, {100, variant});
    sets.add({entry.key, entry.dependencies}, [](const SetTree::Leaf&) { return std::nullopt; });
  }
  const TrustedKeys keys = trusting(fleet());
  const std::string request = make_entry(1).request_canonical;
  Rejection why = Rejection::none;
  const auto opened = open_sets(seal_sets(request, sets, &fleet(), 0), request, &keys, why);
  REQUIRE(opened);
  REQUIRE(opened->recent.size() == 6);
  CHECK(opened->recent.front().key == make_entry(1, {100, 5}).key);
  CHECK(opened->recent.back().dependencies == make_entry(1, {100, 0}).dependencies);
  CHECK(opened->tree.encoded() == sets.tree.encoded());
  // A tree of many, and sets of many headers: the object keeps its bound, the tree is whole.
  FleetSets many;
  for (std::uint64_t variant = 0; variant < 64; ++variant) {
    const StoreEntry entry = make_entry(1, {100, variant, 300});
    many.add({entry.key, entry.dependencies}, [](const SetTree::Leaf&) { return std::nullopt; });
  }
  const std::string sealed = seal_sets(request, many, &fleet(), 0);
  CHECK(sealed.size() <= kMaxSetsObjectBytes);
  const auto bounded = open_sets(sealed, request, &keys, why);
  REQUIRE(bounded);
  CHECK(bounded->tree.size() == 64);
  CHECK_FALSE(bounded->recent.empty());
  CHECK(bounded->recent.front().key == make_entry(1, {100, 63, 300}).key);
  // More sets than one object lists, so small that all have room.
  FleetSets small;
  for (std::uint64_t variant = 0; variant < kMaxFleetSets + 88; ++variant) {
    const StoreEntry entry = make_entry(1, {100, variant, 1});
    small.add({entry.key, entry.dependencies}, [](const SetTree::Leaf&) { return std::nullopt; });
  }
  const auto cut = open_sets(seal_sets(request, small, &fleet(), 0), request, &keys, why);
  REQUIRE(cut);
  CHECK(cut->recent.size() <= kMaxFleetSets);
  CHECK(cut->tree.size() <= kMaxFleetSets);
  CHECK(cut->recent.front().key == make_entry(1, {100, kMaxFleetSets + 87, 1}).key);
  // Of another request: its name says so.
  CHECK_FALSE(open_sets(seal_sets(request, sets, &fleet(), 0), make_entry(2).request_canonical,
                        &keys, why));
  CHECK(why == Rejection::wrong_name);
  // Signed, under the right name, and still not this request's.
  sets.recent.front().key = make_entry(2).key;
  CHECK_FALSE(open_sets(seal_sets(request, sets, &fleet(), 0), request, &keys, why));
  CHECK(why == Rejection::bad_payload);
}

TEST_CASE("fault 72: a flipped bit anywhere is rejected, and nothing signed wrongly is unpacked") {
  const StoreEntry entry = make_entry(1, {300});
  const TrustedKeys keys = trusting(fleet());
  const std::string good = seal_entry(entry, &fleet(), false);
  REQUIRE(rejection_of(good, entry, keys) == Rejection::none);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CAPTURE(i);
    CHECK(rejection_of(bad, entry, keys) != Rejection::none);
  }
  std::string body = good;
  body.back() = static_cast<char>(body.back() ^ 1);
  CHECK(rejection_of(body, entry, keys) == Rejection::bad_hash);
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(rejection_of(good.substr(0, size), entry, keys) != Rejection::none);
  }
  CHECK(rejection_of(good + "x", entry, keys) == Rejection::malformed);
}

TEST_CASE("fault 72: a valid object under another object's name is rejected") {
  const TrustedKeys keys = trusting(fleet());
  const StoreEntry wanted = make_entry(1);
  const StoreEntry other = make_entry(2);
  std::string replay = seal_entry(other, &fleet(), false);
  CHECK(rejection_of(replay, wanted, keys) == Rejection::wrong_name);
  // Renamed: then the signature is of something else.
  const ObjectName name = name_of_entry(wanted);
  replay.replace(kNameOffset, name.bytes.size(), view_of(name));
  CHECK(rejection_of(replay, wanted, keys) == Rejection::bad_signature);
  // Even a signer cannot put one entry into another's envelope.
  Rejection why = Rejection::none;
  const std::string payload = open_envelope(seal_entry(other, &fleet(), false), {}, why)->payload;
  EnvelopeHead head;
  head.name = name;
  CHECK(rejection_of(seal_envelope(head, payload, &fleet()), wanted, keys) ==
        Rejection::wrong_name);
}

TEST_CASE("fault 72: an unknown signer, an absent and a bad signature are rejected") {
  const TrustedKeys keys = trusting(fleet());
  const StoreEntry entry = make_entry(1);
  const SecretKey stranger = *SecretKey::generate("stranger");
  const SecretKey namesake = *SecretKey::generate("fleet");
  CHECK(rejection_of(seal_entry(entry, &stranger, false), entry, keys) ==
        Rejection::unknown_signer);
  CHECK(rejection_of(seal_entry(entry, nullptr, false), entry, keys) == Rejection::no_signature);
  CHECK(rejection_of(seal_entry(entry, &namesake, false), entry, keys) == Rejection::bad_signature);
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, TrustedKeys()) ==
        Rejection::unknown_signer);
}

TEST_CASE("fault 72, fault 124: an envelope of another format is rejected, and so is other data") {
  const TrustedKeys keys = trusting(fleet());
  const StoreEntry entry = make_entry(1);
  Forged forged;
  forged.name = name_of_entry(entry);
  for (const char* const magic : {"CKE0", "CKE2", "CKE5", "CKE7"}) {
    forged.magic = magic;
    CHECK(rejection_of(forged.bytes(fleet()), entry, keys) == Rejection::version);
  }
  CHECK(rejection_of("<html>captive portal</html>", entry, keys) == Rejection::malformed);
  CHECK(rejection_of("", entry, keys) == Rejection::malformed);
  forged.magic = "CKE6";
  forged.codec = 9;
  CHECK(rejection_of(forged.bytes(fleet()), entry, keys) == Rejection::malformed);
}

TEST_CASE("fault 64, fault 72: an oversize claim is rejected before anything is allocated for it") {
  const TrustedKeys keys = trusting(fleet());
  const StoreEntry entry = make_entry(1);
  Forged forged;
  forged.name = name_of_entry(entry);
  forged.raw_bytes = ~0ull;
  CHECK(rejection_of(forged.bytes(fleet()), entry, keys) == Rejection::oversize);
  forged.raw_bytes = forged.payload.size();
  forged.stored_bytes = kMaxEnvelopeBytes + 1;
  CHECK(rejection_of(forged.bytes(fleet()), entry, keys) == Rejection::oversize);
  forged.stored_bytes = forged.payload.size() + 1;
  CHECK(rejection_of(forged.bytes(fleet()), entry, keys) == Rejection::malformed);
}

TEST_CASE("fault 64: a zip bomb gives no more than its header says") {
  const TrustedKeys keys = trusting(fleet());
  const StoreEntry entry = make_entry(1);
  const std::string zeros(64 << 20, '\0');
  Forged bomb;
  bomb.name = name_of_entry(entry);
  bomb.codec = 1;
  bomb.payload.resize(ZSTD_compressBound(zeros.size()));
  bomb.payload.resize(
      ZSTD_compress(bomb.payload.data(), bomb.payload.size(), zeros.data(), zeros.size(), 1));
  bomb.stored_bytes = bomb.payload.size();
  CHECK(bomb.payload.size() < 10'000);
  for (const std::uint64_t claim : {std::uint64_t{1000}, zeros.size() - 1, zeros.size() + 1}) {
    bomb.raw_bytes = claim;
    CHECK(rejection_of(bomb.bytes(fleet()), entry, keys) == Rejection::oversize);
  }
  bomb.raw_bytes = zeros.size();  // honest, and no entry
  CHECK(rejection_of(bomb.bytes(fleet()), entry, keys) == Rejection::bad_payload);
}

TEST_CASE("fault 72: an image for another target, or none, is rejected however well it is signed") {
  const TrustedKeys keys = trusting(fleet());
  StoreEntry entry = make_entry(1);
  entry.cubin.image = SharedBytes(fake_cubin(90, 100, 1));
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, keys) == Rejection::wrong_image);
  entry.cubin.image = SharedBytes("#!/bin/sh");
  CHECK(rejection_of(seal_entry(entry, &fleet(), false), entry, keys) == Rejection::wrong_image);
  entry = make_entry(1);
  Rejection why = Rejection::none;
  const OpenedEnvelope opened = *open_envelope(seal_entry(entry, nullptr, false), {}, why);
  EnvelopeHead head = opened.head;
  head.target = "sm_90a";
  CHECK(rejection_of(seal_envelope(head, opened.payload, &fleet()), entry, keys) ==
        Rejection::wrong_image);
}

// fault 369
TEST_CASE("names are BLAKE2b-256") {
  CHECK(hash_of("abc").hex() == "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  CHECK(ObjectName::of_sets("a") != ObjectName::of_sets("b"));
}

namespace {

class FixedClock final : public Clock {
 public:
  explicit FixedClock(std::int64_t seconds) : seconds_(seconds) {}
  std::int64_t now_ns() const noexcept override { return seconds_ * 1'000'000'000; }

 private:
  std::int64_t seconds_;
};

const FixedClock kFirstOfFebruary(1'801'440'000);  // of 2027

}  // namespace

TEST_CASE("fault 140: what an expired key signed is rejected, whatever date the object claims") {
  StoreEntry entry = make_entry(1);
  entry.created_s = 1'767'300'000;  // long before the expiry: its signer's word
  const std::string sealed = seal_entry(entry, &fleet(), false);
  const std::string text = fleet().public_key().text();
  Rejection why = Rejection::none;
  OpenRules rules;
  rules.clock = &kFirstOfFebruary;
  const TrustedKeys later = *TrustedKeys::parse(text + " expires=2027-02-02");
  rules.trusted = &later;
  CHECK(open_entry(sealed, rules, why)->signer == text);
  const TrustedKeys over = *TrustedKeys::parse(text + " expires=2027-02-01");
  rules.trusted = &over;
  const auto refused = open_entry(sealed, rules, why);
  REQUIRE_FALSE(refused);
  CHECK(why == Rejection::expired_signer);
  CHECK(refused.error().message().find("trusted until 2027-02-01") != std::string::npos);
  CHECK(refused.error().message().find("clock says 2027-02-01") != std::string::npos);
  const FixedClock unset(0);
  rules.trusted = &later;
  rules.clock = &unset;
  CHECK(open_entry(sealed, rules, why).error().message().find("1970-01-01") != std::string::npos);
  CHECK(why == Rejection::expired_signer);
  rules.insecure = true;
  CHECK(open_entry(sealed, rules, why)->signer == kUnsigned);
  FleetSets sets;
  sets.add({entry.key, entry.dependencies}, [](const SetTree::Leaf&) { return std::nullopt; });
  const std::string list = seal_sets(entry.request_canonical, sets, &fleet(), 0);
  CHECK(open_sets(list, entry.request_canonical, &later, why, kFirstOfFebruary));
  CHECK_FALSE(open_sets(list, entry.request_canonical, &over, why, kFirstOfFebruary));
  CHECK(why == Rejection::expired_signer);
}

TEST_CASE(
    "fault 141: a key signs modules of its scope only, by the name signed and the name asked") {
  const StoreEntry entry = make_entry(1);  // kernel_1
  const std::string sealed = seal_entry(entry, &fleet(), false);
  const std::string text = fleet().public_key().text();
  Rejection why = Rejection::none;
  OpenRules rules;
  const TrustedKeys narrow = *TrustedKeys::parse(text + " modules=nvfp4_");
  rules.trusted = &narrow;
  const auto refused = open_entry(sealed, rules, why);
  REQUIRE_FALSE(refused);
  CHECK(why == Rejection::out_of_scope);
  CHECK(refused.error().message().find("not trusted for the module kernel_1;") !=
        std::string::npos);
  rules.insecure = true;
  CHECK_FALSE(open_entry(sealed, rules, why));
  rules.insecure = false;
  const TrustedKeys right = *TrustedKeys::parse(text + " modules=nvfp4_ modules=kernel_");
  rules.trusted = &right;
  CHECK(open_entry(sealed, rules, why)->signer == text);
  rules.module = "kernel_of_this_host";
  CHECK(open_entry(sealed, rules, why).has_value());
  // The signer has put another module's request under a name within its scope.
  rules.module = "attention";
  CHECK_FALSE(open_entry(sealed, rules, why));
  CHECK(why == Rejection::out_of_scope);
  // Another key signs it again: the scope of the first one stays.
  const SecretKey other = *SecretKey::generate("other");
  const TrustedKeys both =
      *TrustedKeys::parse(text + " modules=nvfp4_ modules=kernel_," + other.public_key().text());
  rules.trusted = &both;
  rules.module.reset();
  const std::string again = seal_entry(*open_entry(sealed, rules, why), &other, false);
  CHECK(open_entry(again, rules, why).has_value());
  rules.module = "attention";
  CHECK_FALSE(open_entry(again, rules, why));
  CHECK(open_entry(seal_entry(entry, &other, false), rules, why).has_value());
}
