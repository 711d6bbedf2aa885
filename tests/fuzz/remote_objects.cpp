// SPDX-License-Identifier: Apache-2.0
// libFuzzer: opens the objects of remote stores and bundles. Built by scripts/fuzz.
//
// The first byte selects what the rest is: an envelope; the payload of an entry or of a list, which
// the target signs with a trusted key, so that the code behind the signature is reached; or a list
// of keys. Rule: an object is rejected with a reason, or contains what was requested.

#include <cstdint>
#include <string>

#include "addons/fleet/envelope.hpp"
#include "addons/fleet/keys.hpp"
#include "addons/fleet/module_index.hpp"
#include "core/base/bytes.hpp"
#include "fuzz/require.hpp"
#include "support/store_entries.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

struct Builder {
  SecretKey key = *SecretKey::generate("builder");
  TrustedKeys trusted = *TrustedKeys::parse(key.public_key().text());
  StoreEntry entry = testing::make_entry(1, {64, 0, 1, "sm_100a"});
};

void require_reason(bool taken, Rejection why) {
  require(taken == (why == Rejection::none), "an object is rejected with a reason", name_of(why));
}

void open_as_entry(ByteView bytes, const OpenRules& rules) {
  Rejection why = Rejection::none;
  const auto entry = open_entry(bytes, rules, why);
  require_reason(bool(entry), why);
  if (entry) {
    require(entry->key == cache_key_of(entry->request_canonical, entry->dependencies.canonical()),
            "an entry has its key");
    require(entry->request == CompileRequest::digest_of(entry->request_canonical),
            "and its request");
  }
}

void open_as_sets(ByteView bytes, const Builder& builder, const TrustedKeys* trusted) {
  Rejection why = Rejection::none;
  const auto sets = open_sets(bytes, builder.entry.request_canonical, trusted, why);
  require_reason(bool(sets), why);
  if (sets) {
    for (const RecordedSet& set : sets->recent) {
      require(
          set.key == cache_key_of(builder.entry.request_canonical, set.dependencies.canonical()),
          "a set has its key");
    }
  }
}

void open_as_index(ByteView bytes, const Builder& builder, const TrustedKeys* trusted) {
  Rejection why = Rejection::none;
  const Target target = *Target::parse(builder.entry.labels.target);
  const auto index = open_index(bytes, builder.entry.labels.name, target, {trusted, nullptr}, why);
  require_reason(bool(index), why);
  require(!index || index->rows.size() <= kMaxIndexedRequests, "an index is bounded");
}

void try_envelope(ByteView bytes, const Builder& builder) {
  Rejection why = Rejection::none;
  const auto opened = open_envelope(bytes, {}, why);
  require_reason(bool(opened), why);
  if (opened) {
    require(opened->payload.size() == opened->head.raw_bytes, "a payload has its size");
  }
  open_as_entry(bytes, {});
  open_as_sets(bytes, builder, nullptr);
  open_as_index(bytes, builder, nullptr);
  // Only the builder signs for it.
  why = Rejection::none;
  require(!open_envelope(bytes, {&builder.trusted, nullptr}, why), "a stranger's is not taken");
}

void try_payload(ByteView payload, const Builder& builder) {
  EnvelopeHead head;
  head.name = ObjectName::of(builder.entry.key);
  head.target = builder.entry.labels.target;
  const std::string entry = seal_envelope(head, payload, &builder.key);
  open_as_entry(entry, {&builder.trusted, &head.name});
  open_as_entry(entry, {&builder.trusted, nullptr});
  head.name = ObjectName::of_sets(builder.entry.request_canonical);
  open_as_sets(seal_envelope(head, payload, &builder.key), builder, &builder.trusted);
  head.name = ModuleIndex::name_of(builder.entry.labels.name, *Target::parse(head.target));
  open_as_index(seal_envelope(head, payload, &builder.key), builder, &builder.trusted);
}

void try_keys(ByteView bytes) {
  const std::string text(bytes);
  if (const auto key = PublicKey::parse(text)) {
    const auto again = PublicKey::parse(key->text());
    require(again && *again == *key, "a key is written as it was read");
  }
  if (const auto limits = KeyLimits::parse(text)) {
    const auto again = KeyLimits::parse(limits->text());
    require(again && *again == *limits, "limits of a key are written as they were read");
  }
  if (text.find('/') == std::string::npos) {  // else it may name a file
    static_cast<void>(TrustedKeys::parse(text));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Builder builder;
  if (size == 0) {
    return 0;
  }
  const ByteView bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: try_envelope(bytes, builder); break;
    case 1: try_payload(bytes, builder); break;
    default: try_keys(bytes); break;
  }
  return 0;
}
