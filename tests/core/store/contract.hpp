// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/store/cubin_store.hpp"
#include "support/linked_projects.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// A SetCheck for the files of a project as they are.
class ProjectCheck final : public SetCheck {
 public:
  ProjectCheck(const LinkedProjects& projects, const LinkedProjects::Files& files)
      : files_(files), set_(projects.compile(files)) {}
  std::optional<SetTree::Label> label(const std::string& path) override {
    return LinkedProjects::label(files_, path);
  }
  bool holds(const DependencySet& set, bool) override { return set == set_; }

 private:
  const LinkedProjects::Files& files_;
  const DependencySet set_;
};

/// What the rules of both kinds of objects need of one kind.
struct Entries {
  static StoreEntry make(std::uint64_t number) { return make_entry(number); }
  static CacheKey id(const StoreEntry& entry) { return entry.key; }
  static Lookup get(ObjectTier& tier, const StoreEntry& entry) { return tier.get(entry.key); }
  static bool is_same(const StoreEntry& a, const StoreEntry& b) { return same_content(a, b); }
  static auto list(ObjectTier& tier) { return tier.list(); }
};
struct Blobs {
  static StoreBlob make(std::uint64_t number) {
    return make_blob("test", std::to_string(number), std::string(number * 5000, 'b'),
                     "a:key b:key");
  }
  static BlobId id(const StoreBlob& blob) { return BlobName::id_of(blob.kind, blob.key); }
  static BlobLookup get(ObjectTier& tier, const StoreBlob& blob) {
    return tier.get(*BlobName::make(blob.kind, blob.key));
  }
  static bool is_same(const StoreBlob& a, const StoreBlob& b) {
    return a.kind == b.kind && a.key == b.key && a.bytes.view() == b.bytes.view() &&
           a.signer == b.signer;
  }
  static auto list(ObjectTier& tier) { return tier.list_blobs({}); }
};

/// Checks the rules of every ObjectTier that keeps objects of this kind. Call it inside a
/// TEST_CASE, with a factory of empty tiers.
template <class Kind>
void check_objects(const std::function<std::unique_ptr<ObjectTier>()>& make_empty) {
  const auto tier = make_empty();
  const auto object = Kind::make(1);
  const auto other = Kind::make(0);
  const auto is_listed = [&] { return Kind::list(*tier)->size(); };
  CHECK_FALSE(Kind::get(*tier, object)->has_value());
  CHECK_FALSE(tier->peek(Kind::id(object))->has_value());
  CHECK_FALSE(*tier->remove(ObjectName::of(Kind::id(object))));
  CHECK(is_listed() == 0);
  for (const auto& one : {object, other}) {
    CHECK(*tier->put(one) == PutOutcome::stored);
  }
  CHECK(is_listed() == 2);
  for (const auto& one : {object, other}) {
    for (const auto& found : {Kind::get(*tier, one), tier->peek(Kind::id(one))}) {
      REQUIRE(found);
      REQUIRE(found->has_value());
      CHECK(Kind::is_same(**found, one));
      CHECK((**found).created_s > 0);
    }
  }
  CHECK(tier->put(object).has_value());
  CHECK(is_listed() == 2);
  CHECK(*tier->remove(ObjectName::of(Kind::id(object))));
  CHECK_FALSE(Kind::get(*tier, object)->has_value());
  CHECK(Kind::get(*tier, other)->has_value());
  CHECK(is_listed() == 1);
  CHECK(*tier->put(object) == PutOutcome::stored);
  CHECK(Kind::is_same(**Kind::get(*tier, object), object));
}

/// Checks the rules of a tier that keeps no blobs.
inline void check_no_blobs(ObjectTier& tier) {
  const StoreBlob blob = Blobs::make(1);
  const auto stored = tier.put(blob);
  CHECK((!stored || *stored == PutOutcome::not_stored));
  CHECK_FALSE(Blobs::get(tier, blob)->has_value());
  CHECK_FALSE(tier.peek(Blobs::id(blob))->has_value());
  CHECK_FALSE(*tier.remove(ObjectName::of(Blobs::id(blob))));
  CHECK(tier.list_blobs({})->empty());
}

/// Checks the rules of entries in every ObjectTier. Call it inside a TEST_CASE, with a factory of
/// empty stores.
inline void check_contract(const std::function<std::unique_ptr<ObjectTier>()>& make_empty) {
  SUBCASE("an empty store has no entry") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(1);
    CHECK(store->list_sets(entry.request, entry.request_canonical)->empty());
    const auto found = store->get(entry.key);
    REQUIRE(found);
    CHECK_FALSE(found->has_value());
    CHECK_FALSE(*store->remove(ObjectName::of(entry.key)));
    CHECK(store->list()->empty());
    CHECK(store->stats().entries == 0);
    CHECK(store->source_text(entry.key).error().code() == ErrorCode::not_found);
  }

  SUBCASE("a get returns what was put, byte for byte") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(1);
    CHECK(store->put(entry).has_value());
    const auto found = store->get(entry.key);
    REQUIRE(found);
    REQUIRE(found->has_value());
    CHECK(same_content(**found, entry));
    CHECK((**found).compile_us == entry.compile_us);
    CHECK((**found).created_s > 0);
    CHECK(*store->source_text(entry.key) == entry.source_text);
    CHECK(store->stats().entries == 1);
    CHECK(store->stats().hits == 1);
  }

  SUBCASE("empty and long fields are stored") {
    const auto store = make_empty();
    StoreEntry entry = make_entry(2, {1'000'000, 0, 300, "sm_90"});
    entry.cubin.log.clear();
    entry.cubin.kernels.clear();
    entry.source_text.clear();
    entry.labels.flags = std::string(5000, 'f');
    entry.labels.name = "a\nb<script>";
    entry.origin = Origin::imported;
    entry.signer = "fleet-1";
    CHECK(store->put(entry).has_value());
    const auto found = store->get(entry.key);
    REQUIRE(found);
    REQUIRE(found->has_value());
    CHECK(same_content(**found, entry));
    CHECK(store->source_text(entry.key)->empty());
  }

  SUBCASE("a request leads to its sets, the youngest first") {
    const auto store = make_empty();
    CHECK(store->put(make_entry(1, {100, 1})).has_value());
    CHECK(store->put(make_entry(1, {100, 2})).has_value());
    CHECK(store->put(make_entry(2, {100, 1})).has_value());
    const StoreEntry youngest = make_entry(1, {100, 2});
    const auto sets = store->list_sets(youngest.request, youngest.request_canonical);
    REQUIRE(sets);
    REQUIRE(sets->size() == 2);
    CHECK(sets->front().key == youngest.key);
    CHECK(sets->front().dependencies == youngest.dependencies);
    CHECK(sets->back().key == make_entry(1, {100, 1}).key);
  }

  SUBCASE("a set leads to its own entry, even after the entry moved to another row") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(1);
    CHECK(store->put(entry).has_value());
    CHECK(finds(*store, entry));
    CHECK(*store->remove(ObjectName::of(entry.key)));
    CHECK(store->put(make_entry(2)).has_value());  // takes the row
    CHECK_FALSE(finds(*store, entry));
    CHECK(store->put(entry).has_value());
    CHECK(finds(*store, entry));
  }

  SUBCASE("a peek does not count as a use") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(1);
    CHECK(store->put(entry).has_value());
    CHECK((*store->peek(entry.key))->cubin.image.view() == entry.cubin.image.view());
    CHECK_FALSE(store->peek(make_entry(2).key)->has_value());
    CHECK(store->stats().hits == 0);
    CHECK(store->stats().misses == 0);
    CHECK((*store->get(entry.key))->hits <= 1);  // 1 in a store that counts immediately
    CHECK(store->stats().hits == 1);
  }

  // fault 101
  SUBCASE("each of three hundred sets of a request is found by checking one set") {
    const auto store = make_empty();
    constexpr std::uint64_t kSets = 300;
    for (std::uint64_t variant = 0; variant < kSets; ++variant) {
      CHECK(store->put(make_entry(1, {100, variant})).has_value());
    }
    for (std::uint64_t variant = 0; variant < kSets; ++variant) {
      CAPTURE(variant);
      const StoreEntry entry = make_entry(1, {100, variant});
      FilesOf files(entry.dependencies);
      const auto found =
          store->find(entry.request, entry.request_canonical, files, ObjectTier::Purpose::use);
      REQUIRE(found);
      REQUIRE(found->has_value());
      CHECK((**found).key == entry.key);
      CHECK(files.checked == 1);
    }
    CHECK(store->stats().entries == kSets);
    CHECK(store->stats().evicted == 0);
    FilesOf other(make_entry(1, {100, kSets}).dependencies);
    const StoreEntry any = make_entry(1);
    CHECK_FALSE(store->find(any.request, any.request_canonical, other, ObjectTier::Purpose::use)
                    ->has_value());
    CHECK(other.different == "/cukiln/toolkit/header_0.h");
  }

  // fault 81
  SUBCASE("sets that look alike but for what is one file are told apart") {
    const auto store = make_empty();
    StoreEntry copies = make_entry(1);
    StoreEntry links = make_entry(1, {20'000, 0});
    links.dependencies.observations[1].identity = 0;
    links.dependencies.observations[2].identity = 1;
    links.dependencies.observations[3].identity = 2;
    links.key = cache_key_of(links.request_canonical, links.dependencies.canonical());
    CHECK(store->put(copies).has_value());
    CHECK_FALSE(finds(*store, links));
    CHECK(store->put(links).has_value());
    CHECK(finds(*store, links));
    CHECK(finds(*store, copies));
  }

  // fault 342
  SUBCASE("every set is found, whichever paths were one file, and whatever was looked at then") {
    const auto store = make_empty();
    LinkedProjects projects(7);
    std::vector<LinkedProjects::Files> all;
    for (int i = 0; i < 60; ++i) {
      all.push_back(projects.make());
      StoreEntry entry = make_entry(1);
      entry.dependencies = projects.compile(all.back());
      entry.key = cache_key_of(entry.request_canonical, entry.dependencies.canonical());
      CHECK(store->put(entry).has_value());
    }
    for (const LinkedProjects::Files& files : all) {
      ProjectCheck check(projects, files);
      const StoreEntry any = make_entry(1);
      const Lookup found =
          store->find(any.request, any.request_canonical, check, ObjectTier::Purpose::use);
      REQUIRE(found);
      CHECK(*found);
    }
  }

  SUBCASE("a failure is found by its request and files alone") {
    // fault 418
    const auto store = make_empty();
    const StoreEntry failed = make_failed(1);
    CHECK(store->put(failed).has_value());
    CHECK(store->put(failed).has_value());
    CHECK(finds(*store, failed));
    CHECK_FALSE(finds(*store, make_failed(1, {.variant = 1})));
    CHECK_FALSE(finds(*store, make_failed(2)));
    CHECK(store->list()->empty());
    CHECK(store->list_blobs({})->empty());
    CHECK(store->stats().entries == 0);
    CHECK(store->put(make_entry(1)).has_value());
    CHECK(store->list()->size() == 1);
    CHECK(store->stats().entries == 1);
    CHECK(*store->remove(ObjectName::of(failed.key)));
    CHECK_FALSE(finds(*store, failed));
    CHECK(finds(*store, make_entry(1)));
  }

  SUBCASE("another request with the same digest is a miss") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(1);
    CHECK(store->put(entry).has_value());
    FilesOf files(entry.dependencies);
    CHECK_FALSE(
        store->find(entry.request, make_entry(2).request_canonical, files, ObjectTier::Purpose::use)
            ->has_value());
    CHECK(finds(*store, entry));
  }

  SUBCASE("an entry whose parts do not belong together is refused") {
    const auto store = make_empty();
    StoreEntry wrong_key = make_entry(1);
    wrong_key.key = make_entry(2).key;
    CHECK(store->put(wrong_key).error().code() == ErrorCode::invalid_argument);
    StoreEntry wrong_request = make_entry(1);
    wrong_request.request = make_entry(2).request;
    CHECK(store->put(wrong_request).error().code() == ErrorCode::invalid_argument);
    StoreEntry no_image = make_entry(1);
    no_image.cubin.image = SharedBytes("not an ELF file");
    CHECK(store->put(no_image).error().code() == ErrorCode::invalid_argument);
    StoreEntry other_target = make_entry(1);
    other_target.cubin.image = SharedBytes(fake_cubin(90, 100, 1));
    CHECK(store->put(other_target).error().code() == ErrorCode::invalid_argument);
    CHECK(store->list()->empty());
  }

  SUBCASE("the inventory has the labels and sizes of an entry") {
    const auto store = make_empty();
    const StoreEntry entry = make_entry(7);
    CHECK(store->put(entry).has_value());
    const auto entries = store->list();
    REQUIRE(entries);
    REQUIRE(entries->size() == 1);
    const EntrySummary& summary = entries->front();
    CHECK(summary.key == entry.key);
    CHECK(summary.labels.name == entry.labels.name);
    CHECK(summary.labels.target == "sm_100a");
    CHECK(summary.cubin_bytes == entry.cubin.image.size());
    CHECK(summary.dependencies == 3);
    CHECK(summary.kernels.size() == 1);
    CHECK(summary.kernels.front().lowered == entry.cubin.kernels.front().lowered);
    CHECK(summary.compile_us == entry.compile_us);
    CHECK(summary.created_s > 0);
  }

  SUBCASE("concurrent threads get whole entries") {
    const auto store = make_empty();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&store, &wrong, thread] {
        for (std::uint64_t i = 0; i < 25; ++i) {
          const StoreEntry entry = make_entry(i % 10, {2000, thread % 2});
          const auto put = store->put(entry);
          const auto found = store->get(entry.key);
          if (!put || !found || !*found || !same_content(**found, entry)) {
            ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(wrong == 0);
    CHECK(store->stats().entries == 20);
  }
}

}  // namespace cukiln::testing
