// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "addons/fleet/keys.hpp"
#include "core/store/memory_store.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

TEST_CASE("fault 73: entries signed by a revoked key are removed, and no others") {
  const ScratchFolder folder;
  const std::string good = SecretKey::generate("good")->public_key().text();
  const std::string stolen = SecretKey::generate("stolen")->public_key().text();
  MemoryStore store(1 << 20);
  const auto put = [&](std::uint64_t number, Origin origin, const std::string& signer) {
    StoreEntry entry = make_entry(number, {100});
    entry.origin = origin;
    entry.signer = signer;
    CHECK(*store.put(entry) == PutOutcome::stored);
    return entry.key;
  };
  const CacheKey own = put(1, Origin::compiled, "");
  const CacheKey kept = put(2, Origin::remote, good);
  const CacheKey fetched = put(3, Origin::remote, stolen);
  const CacheKey imported = put(4, Origin::imported, stolen);

  CHECK(*remove_revoked(store, TrustedKeys::parse(good + "," + stolen)->revoked()) == 0);
  const std::string list = folder.write("keys", stolen + "\nrevoked " + stolen + "\n");
  CHECK(*remove_revoked(store, TrustedKeys::parse(list)->revoked()) == 2);
  CHECK(store.get(own)->has_value());
  CHECK(store.get(kept)->has_value());
  CHECK_FALSE(store.get(fetched)->has_value());
  CHECK_FALSE(store.get(imported)->has_value());
}
