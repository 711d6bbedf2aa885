// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/sealed_entry_cache.hpp"

#include <doctest/doctest.h>

#include <string>

#include "addons/daemon/protocol/sealed_file.hpp"

using cukiln::CacheKey;
using cukiln::UniqueFd;
using cukiln::daemon::SealedEntryCache;

namespace {

CacheKey key(char digit) {
  const auto made = CacheKey::parse(std::string(64, digit));
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

TEST_CASE_FIXTURE(Cache, "each hit of an entry is one use") {
  cache.put(key('a'), sealed(10), cache.generation());
  CHECK_FALSE(cache.has_uses());
  CHECK(cache.find(key('a')) != nullptr);
  CHECK(cache.find(key('a')) != nullptr);
  CHECK(cache.take_uses() == std::vector<CacheKey>{key('a'), key('a')});
  CHECK_FALSE(cache.has_uses());
}

TEST_CASE_FIXTURE(
    Cache, "the least recently used entry is evicted, and one that is too large is not cached") {
  cache.put(key('a'), sealed(400), cache.generation());
  cache.put(key('b'), sealed(400), cache.generation());
  CHECK(cache.find(key('a')) != nullptr);
  cache.put(key('c'), sealed(400), cache.generation());
  CHECK(cache.find(key('b')) == nullptr);
  CHECK(cache.find(key('a')) != nullptr);
  cache.put(key('d'), sealed(1001), cache.generation());
  CHECK(cache.find(key('d')) == nullptr);
}

TEST_CASE_FIXTURE(Cache, "an entry that was read before a forget is not cached") {
  const auto before = cache.generation();
  cache.put(key('b'), sealed(10), before);
  cache.forget(key('a'));
  cache.put(key('a'), sealed(10), before);
  CHECK(cache.find(key('a')) == nullptr);
  CHECK(cache.find(key('b')) != nullptr);
  cache.forget(CacheKey{});
  CHECK(cache.find(key('b')) == nullptr);
}
