// SPDX-License-Identifier: Apache-2.0
#include "daemon/sealed_entry_cache.hpp"

#include <doctest/doctest.h>

#include <string>

#include "wire/sealed_file.hpp"

using cukiln::CacheKey;
using cukiln::UniqueFd;
using cukiln::daemon::SealedEntryCache;

namespace {

constexpr uid_t kAlice = 1001, kBob = 1002;

CacheKey key(char digit) {
  const auto made = CacheKey::from_hex(std::string(64, digit));
  REQUIRE(made);
  return *made;
}

std::shared_ptr<UniqueFd> sealed(std::size_t bytes) {
  auto file = cukiln::wire::make_sealed_file({std::string(bytes, 'x')});
  REQUIRE(file);
  return std::make_shared<UniqueFd>(*std::move(file));
}

struct Cache {
  SealedEntryCache cache{1000};
};

}  // namespace

TEST_CASE_FIXTURE(Cache, "an entry is found by its user only, and each hit is one use") {
  cache.put(kAlice, key('a'), sealed(10), cache.generation());
  CHECK(cache.find(kBob, key('a')) == nullptr);
  CHECK_FALSE(cache.has_uses());
  CHECK(cache.find(kAlice, key('a')) != nullptr);
  CHECK(cache.find(kAlice, key('a')) != nullptr);
  CHECK(cache.take_uses() ==
        std::vector<SealedEntryCache::Key>{{kAlice, key('a')}, {kAlice, key('a')}});
  CHECK_FALSE(cache.has_uses());
}

TEST_CASE_FIXTURE(
    Cache, "the least recently used entry is evicted, and one that is too large is not cached") {
  cache.put(kAlice, key('a'), sealed(400), cache.generation());
  cache.put(kAlice, key('b'), sealed(400), cache.generation());
  CHECK(cache.find(kAlice, key('a')) != nullptr);
  cache.put(kAlice, key('c'), sealed(400), cache.generation());
  CHECK(cache.find(kAlice, key('b')) == nullptr);
  CHECK(cache.find(kAlice, key('a')) != nullptr);
  cache.put(kAlice, key('d'), sealed(1001), cache.generation());
  CHECK(cache.find(kAlice, key('d')) == nullptr);
}

TEST_CASE_FIXTURE(Cache, "an entry that was read before a forget is not cached") {
  const auto before = cache.generation();
  cache.put(kAlice, key('b'), sealed(10), before);
  cache.forget(kAlice, key('a'));
  cache.put(kAlice, key('a'), sealed(10), before);
  CHECK(cache.find(kAlice, key('a')) == nullptr);
  CHECK(cache.find(kAlice, key('b')) != nullptr);
  cache.forget(kAlice, CacheKey{});
  CHECK(cache.find(kAlice, key('b')) == nullptr);
}
