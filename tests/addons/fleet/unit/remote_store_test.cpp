// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_store.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "addons/fleet/module_index.hpp"
#include "core/store/tiered_store.hpp"
#include "support/scratch.hpp"
#include "support/store_entries.hpp"
#include "support/wait.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr auto kUsual = RemoteTier::Freshness::usual;
constexpr auto kNow = RemoteTier::Freshness::now;
constexpr std::uint64_t kMaxNames = 65'536;  // of uploads that wait

/// The memory of a server that several stores use.
struct Shelf {
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  std::map<std::string, SteadyTime> leases;
  std::map<std::string, std::string> tokens;  // the last one of each lease
  std::vector<std::string> offered;           // in each attempt to acquire a lease
  milliseconds put_takes{0};
  std::vector<std::string> puts;      // names of what was stored
  std::deque<RemoteAnswer> failures;  // of the next requests
};

class ShelfEndpoint final : public RemoteEndpoint {
 public:
  explicit ShelfEndpoint(Shelf& shelf) : shelf_(shelf) {}
  const std::string& where() const noexcept override { return where_; }
  RemoteAnswer get(const ObjectName& name, SteadyTime) override {
    const std::lock_guard lock(shelf_.mutex);
    if (const auto failure = next_failure()) {
      return *failure;
    }
    const auto at = shelf_.objects.find(name.hex());
    return at == shelf_.objects.end() ? RemoteAnswer{RemoteStatus::absent, {}, {}}
                                      : RemoteAnswer{RemoteStatus::ok, at->second, {}};
  }
  RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime) override {
    std::this_thread::sleep_for(shelf_.put_takes);
    const std::lock_guard lock(shelf_.mutex);
    if (const auto failure = next_failure()) {
      return *failure;
    }
    shelf_.objects[name.hex()] = bytes;
    shelf_.puts.push_back(name.hex());
    return {};
  }
  bool has_leases() const noexcept override { return true; }
  RemoteAnswer acquire_lease(const ObjectName& name, ByteView token, milliseconds expiry,
                             SteadyTime) override {
    const std::lock_guard lock(shelf_.mutex);
    shelf_.offered.emplace_back(token);
    const bool held = is_held(name);
    if (!held) {
      shelf_.leases[name.hex()] = steady_clock::now() + expiry;
      shelf_.tokens[name.hex()] = token;
    }
    return {held ? RemoteStatus::absent : RemoteStatus::ok, {}, {}};
  }
  RemoteAnswer renew_lease(const ObjectName& name, ByteView token, milliseconds expiry,
                           SteadyTime) override {
    const std::lock_guard lock(shelf_.mutex);
    if (is_held(name)) {
      shelf_.leases[name.hex()] = steady_clock::now() + expiry;
      shelf_.tokens[name.hex()] = token;
    }
    return {};
  }
  RemoteAnswer release_lease(const ObjectName& name, SteadyTime) override {
    const std::lock_guard lock(shelf_.mutex);
    shelf_.leases.erase(name.hex());
    return {};
  }
  RemoteAnswer query_lease(const ObjectName& name, SteadyTime) override {
    const std::lock_guard lock(shelf_.mutex);
    return is_held(name) ? RemoteAnswer{RemoteStatus::ok, shelf_.tokens[name.hex()], {}}
                         : RemoteAnswer{RemoteStatus::absent, {}, {}};
  }

 private:
  std::optional<RemoteAnswer> next_failure() {
    if (shelf_.failures.empty()) {
      return std::nullopt;
    }
    RemoteAnswer failure = std::move(shelf_.failures.front());
    shelf_.failures.pop_front();
    return failure;
  }
  bool is_held(const ObjectName& name) const {
    const auto at = shelf_.leases.find(name.hex());
    return at != shelf_.leases.end() && steady_clock::now() < at->second;
  }
  Shelf& shelf_;
  const std::string where_ = "shelf://";
};

struct Fleet {
  Shelf shelf;
  SecretKey key = *SecretKey::generate("fleet");
  std::string warnings;  // of hosts without threads of their own
  std::size_t max_queued = 64;

  /// Without a list of trusted keys a host trusts `key`.
  std::unique_ptr<RemoteStore> host(bool writer = true, const std::string& trust = {}) {
    RemoteStore::Options options;
    options.max_queued = max_queued;
    options.endpoints.push_back(std::make_unique<ShelfEndpoint>(shelf));
    options.trusted = *TrustedKeys::parse(trust.empty() ? key.public_key().text() : trust);
    options.log = Logger([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warn) {
        warnings += std::string(text) + "\n";
      }
    });
    options.lease = milliseconds(600);
    if (writer) {
      options.key = key;
    }
    return std::make_unique<RemoteStore>(std::move(options));
  }
};

const std::atomic<bool> kNotCancelled{false};
constexpr milliseconds kLongerThanATest = std::chrono::minutes(20);
const auto kNothing = [] { return false; };

std::optional<StoreEntry> found_by(RemoteStore& store, const StoreEntry& entry,
                                   RemoteTier::Freshness freshness = kNow) {
  FilesOf files(entry.dependencies);
  return store.find(entry.request_canonical, entry.labels.name, files, freshness);
}

bool finds(RemoteStore& store, const StoreEntry& entry) {
  const auto found = found_by(store, entry);
  return found && found->key == entry.key;
}

}  // namespace

TEST_CASE("a host that never compiled finds what another one put") {
  Fleet fleet;
  const StoreEntry entry = make_entry(1);
  const auto writer = fleet.host();
  writer->put(entry);
  CHECK(writer->finish(milliseconds(10'000)));
  CHECK(writer->stats().stored == 1);
  const auto reader = fleet.host(false);
  auto found = found_by(*reader, entry, kUsual);
  REQUIRE(found);
  CHECK(found->origin == Origin::remote);
  CHECK(found->signer == fleet.key.public_key().text());
  CHECK(found->source_text.empty());
  found->origin = entry.origin;
  found->signer.clear();
  CHECK(same_content(*found, entry));
  CHECK(reader->stats().hits == 1);
}

TEST_CASE(
    "fault 347: without headers of CUDA a host finds what the machine that compiled vouches for") {
  Fleet fleet;
  const auto writer = fleet.host();
  StoreEntry other = make_entry(1);
  StoreEntry vouched = make_entry(2);
  vouched.signer = kOwnToolkit;
  writer->put(other);
  writer->put(vouched);
  CHECK(writer->finish(milliseconds(10'000)));
  const auto reader = fleet.host(false);
  const auto found = [&](const StoreEntry& entry) {
    FilesOf files(entry.dependencies);
    files.has_toolkit = false;
    return reader->find(entry.request_canonical, entry.labels.name, files, kNow).has_value();
  };
  CHECK_FALSE(found(other));
  CHECK(found(vouched));
  CHECK(finds(*reader, other));  // with headers they are compared
}

TEST_CASE("requests are counted by kind, with the time that they took") {
  Fleet fleet;
  const auto writer = fleet.host();
  CHECK_FALSE(finds(*writer, make_entry(1)));
  fleet.shelf.put_takes = milliseconds(100);
  writer->put(make_entry(1));
  writer->put(make_entry(2));
  CHECK(writer->stats().queued >= 1);
  CHECK(writer->finish(milliseconds(5000)));
  CHECK(writer->stats().queued == 0);
  const RemoteStore::Health health = writer->health().at(0);
  CHECK(health.has_leases);
  const RemoteTraffic& gets = health.traffic[static_cast<std::size_t>(RemoteOp::get)];
  const RemoteTraffic& puts = health.traffic[static_cast<std::size_t>(RemoteOp::put)];
  const RemoteTraffic& leases = health.traffic[static_cast<std::size_t>(RemoteOp::lease)];
  CHECK(gets.ended[static_cast<std::size_t>(RemoteStatus::absent)] == 5);
  CHECK(puts.ended[static_cast<std::size_t>(RemoteStatus::ok)] == 6);  // entries, sets, indices
  CHECK(leases.ended == std::array<std::uint64_t, kRemoteStatuses>{});
  CHECK(puts.times.sum_us >= 600'000);
  CHECK(puts.times.buckets.front() == 0);  // up to 1 ms
  CHECK(puts.times.buckets.back() == 0);   // more than 10 s
  CHECK(std::accumulate(puts.times.buckets.begin(), puts.times.buckets.end(), 0u) == 6);
  CHECK(gets.times.sum_us < puts.times.sum_us);
}

// fault 101
TEST_CASE("a hundred sets of a request are found, and a lookup reads at most 64 KiB of sets") {
  Fleet fleet;
  const auto a = fleet.host();
  const auto b = fleet.host();
  constexpr std::uint64_t kSets = 100;
  const auto shape = [](std::uint64_t variant) { return EntryShape{100, variant, 40}; };
  for (std::uint64_t variant = 0; variant < kSets; ++variant) {
    (variant % 2 == 0 ? a : b)->put(make_entry(1, shape(variant)));
    CHECK(a->finish(milliseconds(10'000)));
    CHECK(b->finish(milliseconds(10'000)));
  }
  const auto reader = fleet.host(false);
  for (const std::uint64_t variant : {99, 98, 50, 1, 0}) {
    CAPTURE(variant);
    const StoreEntry entry = make_entry(1, shape(variant));
    const std::uint64_t before = reader->stats().received_bytes;
    CHECK(finds(*reader, entry));
    constexpr std::uint64_t kEntryBytes = 16 << 10;
    CHECK(reader->stats().received_bytes - before <= kMaxSetsObjectBytes + kEntryBytes);
  }
  CHECK_FALSE(finds(*reader, make_entry(1, shape(kSets))));
}

// fault 359
TEST_CASE("a host is told what the fleet recorded of a request, and of others of its module") {
  Fleet fleet;
  const auto writer = fleet.host();
  const auto put = [&](StoreEntry entry) {
    writer->put(entry);
    CHECK(writer->finish(milliseconds(10'000)));
    return entry;
  };
  const StoreEntry stored = put(make_entry(1));
  StoreEntry other = make_entry(2);
  other.labels.name = stored.labels.name;
  put(other);
  const auto describe = [&](const StoreEntry& entry, const StoreEntry& files_of) {
    FilesOf files(files_of.dependencies);
    return fleet.host(false)->describe(entry.request_canonical, entry.labels.name, files);
  };
  RemoteRecord record = describe(stored, make_entry(1, {100, 7}));
  REQUIRE(record.sets.size() == 1);
  CHECK(record.sets.front().key == stored.key);
  REQUIRE(record.requests.size() == 2);
  CHECK(record.requests.front().canonical == other.request_canonical);
  CHECK(record.problem.empty());

  StoreEntry third = make_entry(3);
  third.labels.name = stored.labels.name;
  record = describe(third, third);
  CHECK(record.sets.empty());
  CHECK(record.requests.size() == 2);
  CHECK(record.problem.empty());

  record = describe(make_entry(4), make_entry(4));
  CHECK((record.sets.empty() && record.requests.empty()));
  CHECK(record.problem.find("no machine has published kernel_4 for sm_100a to shelf://") == 0);

  SUBCASE("the entry was evicted") {  // fault 457
    fleet.shelf.objects.erase(ObjectName::of(stored.key).hex());
    CHECK(describe(stored, stored).problem == "recorded by shelf://, and evicted or removed since");
    fleet.shelf.objects.erase(ObjectName::of_sets(stored.request_canonical).hex());
    CHECK(describe(stored, stored).problem.find("uploaded to shelf:// on 20") == 0);
  }
  SUBCASE("its key was revoked") {  // fault 457
    const std::string key = fleet.key.public_key().text();
    const ScratchFolder folder;
    const std::string list =
        folder.write("keys", SecretKey::generate("new")->public_key().text() + "\nrevoked " + key);
    FilesOf files(stored.dependencies);
    const auto reader = fleet.host(false, list);
    CHECK(reader->describe(stored.request_canonical, stored.labels.name, files).problem ==
          "shelf://: the object is signed by \"fleet\", whose key was revoked");
  }
}

// fault 455
TEST_CASE("writers replace an index that is none, and one of two at a time may lose its row") {
  Fleet fleet;
  const StoreEntry entry = make_entry(1);
  const std::string name =
      ModuleIndex::name_of(entry.labels.name, *Target::parse(entry.labels.target)).hex();
  const auto put = [&](const StoreEntry& uploaded) {
    const auto writer = fleet.host();
    writer->put(uploaded);
    CHECK(writer->finish(milliseconds(10'000)));
  };
  const auto rows = [&] {
    FilesOf files(entry.dependencies);
    return fleet.host(false)
        ->describe(entry.request_canonical, entry.labels.name, files)
        .requests.size();
  };
  fleet.shelf.objects[name] = "no index";
  CHECK(rows() == 0);
  put(entry);
  CHECK(rows() == 1);
  std::vector<std::thread> writers;
  for (std::uint64_t i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      StoreEntry other = make_entry(10 + i);
      other.labels.name = entry.labels.name;
      put(other);
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  CHECK(rows() >= 2);
  CHECK(fleet.warnings.empty());
}

TEST_CASE("what a host put itself it does not believe to be absent") {
  Fleet fleet;
  const auto store = fleet.host();
  const StoreEntry entry = make_entry(1);
  CHECK_FALSE(found_by(*store, entry, kUsual));
  store->put(entry);
  CHECK(store->finish(milliseconds(10'000)));
  CHECK(found_by(*store, entry, kUsual));
}

// fault 370
TEST_CASE("a set that names paths of this machine stays on it") {
  Fleet fleet;
  const auto store = fleet.host();
  StoreEntry entry = make_entry(1);
  entry.dependencies.add_file("/opt/secret/project.h", hash_of("x"));
  store->put(entry);
  CHECK(store->finish(milliseconds(10'000)));
  CHECK(fleet.shelf.objects.empty());
}

TEST_CASE("one host compiles, the others wait for what it puts") {
  Fleet fleet;
  fleet.shelf.put_takes = milliseconds(20);
  const StoreEntry entry = make_entry(1);
  std::atomic<int> compiled{0};
  std::atomic<int> found{0};
  std::vector<std::thread> hosts;
  for (int i = 0; i < 8; ++i) {
    hosts.emplace_back([&] {
      const auto store = fleet.host();
      auto lease = store->await_peer_or_lease(entry.request_canonical, milliseconds(10'000),
                                              kNotCancelled, [&] { return finds(*store, entry); });
      if (!lease) {
        ++found;
      } else {
        ++compiled;
        std::this_thread::sleep_for(milliseconds(1500));  // longer than the lease: it is renewed
        store->put(entry);
        lease->release();
      }
      store->finish(milliseconds(10'000));
    });
  }
  for (std::thread& host : hosts) {
    host.join();
  }
  CHECK(compiled == 1);
  CHECK(found == 7);
  CHECK(fleet.shelf.leases.empty());
}

TEST_CASE("a host that died with its lease is waited for no longer than that lasts") {
  Fleet fleet;
  const StoreEntry entry = make_entry(1);
  ShelfEndpoint dead(fleet.shelf);
  dead.acquire_lease(ObjectName::of_sets(entry.request_canonical), "", milliseconds(200), {});
  const auto start = steady_clock::now();
  for (const bool writer : {false, true}) {
    const auto store = fleet.host(writer);
    const auto lease = store->await_peer_or_lease(entry.request_canonical, kLongerThanATest,
                                                  kNotCancelled, kNothing);
    REQUIRE(lease);
    CHECK(lease->held() == writer);
    CHECK(steady_clock::now() - start > milliseconds(150));
  }
}

TEST_CASE("a host that polls for a lease signs one token for it") {
  Fleet fleet;
  const auto holder = fleet.host();
  const auto lease =
      holder->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
  int polls = 0;
  const auto waiter = fleet.host();
  CHECK_FALSE(waiter->await_peer_or_lease("request", kLongerThanATest, kNotCancelled,
                                          [&] { return ++polls == 4; }));
  std::vector<std::string>& offered = fleet.shelf.offered;
  REQUIRE(offered.size() == 5);
  CHECK(offered[0] != offered[1]);
  CHECK(std::count(offered.begin(), offered.end(), offered[1]) == 4);
}

// fault 384
TEST_CASE("a lease that no trusted key renews is believed for as long as one lasts") {
  Fleet fleet;
  const std::string request = "request";
  const ObjectName name = ObjectName::of_sets(request);
  std::string token;
  const auto record = [&] {
    const auto peer = fleet.host();
    const auto lease = peer->await_peer_or_lease(request, milliseconds(0), kNotCancelled, kNothing);
    token = fleet.shelf.tokens[name.hex()];
  };
  SUBCASE("an empty one") {}
  SUBCASE("one of a version without tokens") { token = "1"; }
  SUBCASE("a token that a machine of the fleet had") { record(); }
  SUBCASE("a token of another request") {
    const auto peer = fleet.host();
    const auto lease = peer->await_peer_or_lease("other", milliseconds(0), kNotCancelled, kNothing);
    token = fleet.shelf.tokens[ObjectName::of_sets("other").hex()];
  }
  SUBCASE("a token that a stranger signed") {
    fleet.key = *SecretKey::generate("fleet");
    record();
    fleet.key = *SecretKey::generate("fleet");
  }
  ShelfEndpoint attacker(fleet.shelf);
  attacker.acquire_lease(name, token, std::chrono::hours(1), {});
  for (const bool writer : {false, true}) {
    const auto lease =
        fleet.host(writer)->await_peer_or_lease(request, kLongerThanATest, kNotCancelled, kNothing);
    REQUIRE(lease);
    CHECK_FALSE(lease->held());
  }
}

// fault 384
TEST_CASE("tokens that were read before, in turns, are no renewals") {
  Fleet fleet;
  RemoteStore::Options options;
  options.trusted = *TrustedKeys::parse(fleet.key.public_key().text());
  options.key = fleet.key;
  options.lease = milliseconds(600);
  const ObjectName name = ObjectName::of_sets("request");
  std::vector<std::string> tokens;
  for (int i = 0; i < 2; ++i) {
    const auto peer = fleet.host();
    const auto lease =
        peer->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
    tokens.push_back(fleet.shelf.tokens[name.hex()]);
  }
  PeerLease peer(options, "request");
  const SteadyTime start = steady_clock::now();
  CHECK(peer.is_alive(tokens[0], start));
  CHECK(peer.is_alive(tokens[0], start + milliseconds(500)));
  CHECK(peer.is_alive(tokens[1], start + milliseconds(500)));
  CHECK(peer.is_alive(tokens[0], start + milliseconds(1000)));
  CHECK_FALSE(peer.is_alive(tokens[1], start + milliseconds(1100)));
  CHECK_FALSE(peer.is_alive(tokens[0], start + milliseconds(1200)));
}

TEST_CASE("a compile that failed lets the next host try") {
  Fleet fleet;
  const auto a = fleet.host();
  const auto b = fleet.host();
  {
    const auto lease = a->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
    REQUIRE(lease);
    CHECK(lease->held());
    CHECK(fleet.shelf.leases.size() == 1);
  }
  CHECK(fleet.shelf.leases.empty());
  CHECK(b->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing)->held());
  CHECK(b->stats().waits == 0);
}

TEST_CASE("a lease is released when a peer's result is found, and when the search for it throws") {
  Fleet fleet;
  const auto store = fleet.host();
  const auto found = [] { return true; };
  CHECK_FALSE(store->await_peer_or_lease("request", milliseconds(0), kNotCancelled, found));
  CHECK(fleet.shelf.leases.empty());
  const auto throws = []() -> bool { throw std::bad_alloc(); };
  CHECK_THROWS(store->await_peer_or_lease("request", milliseconds(0), kNotCancelled, throws));
  CHECK(fleet.shelf.leases.empty());
}

TEST_CASE("a lease that moves is released once, by the one that has it") {
  Fleet fleet;
  const auto store = fleet.host();
  auto lease = store->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
  REQUIRE(lease);
  RemoteLease moved = *std::move(lease);
  lease.reset();
  CHECK(fleet.shelf.leases.size() == 1);
  moved = RemoteLease();
  CHECK(fleet.shelf.leases.empty());
}

TEST_CASE("a lease keeps its store alive where the owner of both asks for it") {
  Fleet fleet;
  std::shared_ptr<RemoteStore> store = fleet.host();
  auto lease = store->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
  REQUIRE(lease);
  lease->keep_alive(store);
  const std::weak_ptr<RemoteStore> watched = store;
  store.reset();
  CHECK_FALSE(watched.expired());
  lease.reset();
  CHECK(watched.expired());
  CHECK(fleet.shelf.leases.empty());
}

TEST_CASE("a wait has a limit, and can be cancelled") {
  Fleet fleet;
  const auto holder = fleet.host();
  const auto lease =
      holder->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
  REQUIRE(lease);
  const auto waiter = fleet.host();
  const auto none_held = [&](milliseconds limit, CancelFlags cancelled) {
    const auto own = waiter->await_peer_or_lease("request", limit, cancelled, kNothing);
    return own.has_value() && !own->held();
  };
  const auto start = steady_clock::now();
  CHECK(none_held(milliseconds(300), kNotCancelled));
  CHECK(steady_clock::now() - start >= milliseconds(300));
  const std::atomic<bool> cancelled{true};
  CHECK(none_held(kLongerThanATest, cancelled));
  CHECK(waiter->stats().waits == 2);
}

TEST_CASE("a reader waits for the machine that compiles, and takes no lease") {
  Fleet fleet;
  const auto reader = fleet.host(false);
  const auto lease =
      reader->await_peer_or_lease("request", milliseconds(0), kNotCancelled, kNothing);
  REQUIRE(lease);
  CHECK_FALSE(lease->held());
  CHECK(fleet.shelf.leases.empty());
}

TEST_CASE("a remote without a trusted key is an error that says what is missing") {
  const auto opened = RemoteStore::open("redis://127.0.0.1:1", "", "", milliseconds(200), {});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message().find("CUKILN_REMOTE_TRUST") != std::string::npos);
  CHECK(*RemoteStore::open("", "", "", milliseconds(200), {}) == nullptr);
  CHECK(*RemoteStore::open(" , ", "nonsense", "", milliseconds(200), {}) == nullptr);
}

TEST_CASE("fault 140: objects of an expired key are misses, and make room for those of another") {
  constexpr std::uint64_t kModules = 6;  // more failures than open a circuit
  Fleet fleet;
  const std::string old_key = fleet.key.public_key().text();
  const auto put_all = [&](RemoteStore& store) {
    for (std::uint64_t number = 1; number <= kModules; ++number) {
      store.put(make_entry(number));
    }
    CHECK(store.finish(milliseconds(10'000)));
  };
  put_all(*fleet.host());
  fleet.key = *SecretKey::generate("fleet-2");
  const std::string trust = old_key + " expires=2026-01-02," + fleet.key.public_key().text();
  const auto builder = fleet.host(true, trust);
  for (std::uint64_t number = 1; number <= kModules; ++number) {
    CHECK_FALSE(finds(*builder, make_entry(number)));
  }
  CHECK(builder->stats().rejected[static_cast<std::size_t>(Rejection::expired_signer)] == kModules);
  CHECK(fleet.warnings.find("trusted until 2026-01-02") != std::string::npos);
  CHECK(builder->health().at(0).state == ServerBreaker::State::closed);
  put_all(*builder);
  const auto reader = fleet.host(false, trust);
  for (std::uint64_t number = 1; number <= kModules; ++number) {
    const auto found = found_by(*reader, make_entry(number));
    REQUIRE(found);
    CHECK(found->signer == fleet.key.public_key().text());
  }
}

TEST_CASE("fault 141: a lookup under a name outside of the signer's scope is a miss") {
  Fleet fleet;
  const std::string trust = fleet.key.public_key().text() + " modules=kernel_1";
  const StoreEntry entry = make_entry(1);
  const auto writer = fleet.host();
  writer->put(entry);
  CHECK(writer->finish(milliseconds(10'000)));
  FilesOf files(entry.dependencies);
  CHECK(fleet.host(false, trust)->find(entry.request_canonical, "kernel_1", files, kNow));
  const auto reader = fleet.host(false, trust);
  CHECK_FALSE(reader->find(entry.request_canonical, "attention", files, kNow));
  CHECK(fleet.warnings.find("not trusted for the module attention") != std::string::npos);
}

// fault 140, fault 141, fault 338
TEST_CASE("a machine does not upload what the fleet would reject from its key, and says so once") {
  const std::pair<const char*, const char*> cases[] = {
      {" expires=2026-01-02", "\"fleet\", is expired"},
      {"\nrevoked ", "\"fleet\", is revoked"},
      {" modules=nvfp4_", "\"fleet\", is not trusted for kernel_1"}};
  for (const auto& [limits, said] : cases) {
    CAPTURE(limits);
    Fleet fleet;
    const std::string own = fleet.key.public_key().text();
    const bool is_revoked = std::string_view(limits).starts_with("\n");
    const ScratchFolder folder;
    const auto writer =
        fleet.host(true, folder.write("keys", own + limits + (is_revoked ? own : "") + "\n"));
    writer->put(make_entry(1));
    writer->put(make_entry(1, EntryShape{100, 1, 40}));
    writer->finish(milliseconds(10'000));
    CHECK(fleet.shelf.objects.empty());
    CHECK(writer->stats().dropped == 2);
    const auto lost = writer->report().not_uploaded;
    REQUIRE(lost.size() == 1);
    CHECK(lost[0].objects == 2);
    CHECK(lost[0].detail.find(said) != std::string::npos);
    CHECK(fleet.warnings.find(said) != std::string::npos);
    CHECK(fleet.warnings.find(said) == fleet.warnings.rfind(said));
    const RemoteProbe::Server probe = writer->probe().servers.at(0);
    CHECK(probe.works == (std::string_view(limits) == " modules=nvfp4_"));
    CHECK((probe.works || probe.detail.find(said) != std::string::npos));
  }
}

TEST_CASE("what a key signed that is revoked now is not uploaded, and not lost") {
  Fleet fleet;
  const std::string own = fleet.key.public_key().text();
  const std::string old = SecretKey::generate("old")->public_key().text();
  const ScratchFolder folder;
  const auto writer = fleet.host(true, folder.write("keys", own + "\nrevoked " + old + "\n"));
  StoreEntry entry = make_entry(1);
  entry.signer = old;
  writer->put(entry);
  CHECK(writer->finish(kLongerThanATest));
  CHECK(fleet.shelf.objects.empty());
  CHECK((writer->stats().stored == 0 && writer->stats().dropped == 0));
}

TEST_CASE("fault 319: a failed upload is tried again, and no lookup's failure stops it") {
  Fleet fleet;
  const auto writer = fleet.host();
  fleet.shelf.failures = {{RemoteStatus::timeout, {}, "late"}};
  CHECK_FALSE(finds(*writer, make_entry(1)));
  CHECK(writer->health().at(0).state == ServerBreaker::State::open);
  fleet.shelf.failures = {{RemoteStatus::busy, {}, "loading"}, {RemoteStatus::timeout, {}, "late"}};
  writer->put(make_entry(1));
  writer->put(make_entry(2));
  CHECK(writer->finish(kLongerThanATest));
  CHECK(writer->stats().stored == 2);
  CHECK(writer->stats().dropped == 0);
  CHECK(writer->report().not_uploaded.empty());
  CHECK(writer->health().at(0).state == ServerBreaker::State::open);
  CHECK(finds(*fleet.host(false), make_entry(1)));
}

TEST_CASE("fault 319: neither the others nor a lease wait for an upload that failed") {
  Fleet fleet;
  const auto writer = fleet.host();
  auto lease = writer->await_peer_or_lease(make_entry(1).request_canonical, kLongerThanATest,
                                           kNotCancelled, kNothing);
  {
    const std::lock_guard none_ends(fleet.shelf.mutex);
    fleet.shelf.failures = {{RemoteStatus::busy, {}, "loading"}};
    writer->put(make_entry(1));
    writer->put(make_entry(2));
  }
  lease->release();
  CHECK(writer->finish(kLongerThanATest));
  CHECK(becomes_true([&] {
    const std::lock_guard lock(fleet.shelf.mutex);
    return fleet.shelf.leases.empty();
  }));
  REQUIRE_FALSE(fleet.shelf.puts.empty());
  CHECK(fleet.shelf.puts.front() == ObjectName::of(make_entry(2).key).hex());
}

TEST_CASE("fault 319: the sets of a request are not replaced if they could not be read") {
  Fleet fleet;
  const StoreEntry first = make_entry(1, EntryShape{100, 1, 40});
  const StoreEntry second = make_entry(1, EntryShape{100, 2, 40});
  const auto writer = fleet.host();
  writer->put(first);
  CHECK(writer->finish(kLongerThanATest));
  fleet.shelf.put_takes = milliseconds(0);
  writer->put(second);  // its second request reads the sets
  CHECK(writer->finish(kLongerThanATest));
  CHECK(finds(*fleet.host(false), first));
  CHECK(finds(*fleet.host(false), second));
}

TEST_CASE("fault 328: an upload that is refused is lost at once, with the reason") {
  for (const RemoteStatus status :
       {RemoteStatus::denied, RemoteStatus::untrusted, RemoteStatus::redirected}) {
    CAPTURE(name_of(status));
    Fleet fleet;
    fleet.shelf.failures = {{status, {}, "NOPERM"}};
    const auto writer = fleet.host();
    writer->put(make_entry(1));
    writer->put(make_entry(2));
    CHECK_FALSE(writer->finish(kLongerThanATest));
    CHECK(writer->stats().dropped == 2);
    CHECK(fleet.shelf.objects.empty());
    const auto lost = writer->report().not_uploaded;
    REQUIRE(lost.size() == 1);
    CHECK(lost[0].server == "shelf://");
    CHECK(lost[0].reason == name_of(status));
    CHECK(lost[0].detail == "NOPERM");
    CHECK(lost[0].objects == 2);
    CHECK(lost[0].advice.find("cukiln push") != std::string::npos);
  }
}

TEST_CASE("fault 328: an object that a server refuses costs no other one") {
  Fleet fleet;
  RemoteAnswer refusal{RemoteStatus::bad_answer, {}, "HTTP status 413"};
  refusal.refuses_object = true;
  fleet.shelf.failures = {refusal};
  const auto writer = fleet.host();
  writer->put(make_entry(1));
  writer->put(make_entry(2));
  CHECK(writer->finish(kLongerThanATest));
  CHECK(writer->stats().dropped == 1);
  CHECK(writer->stats().stored == 1);
}

namespace {

/// A machine's store on disk.
struct Machine {
  ScratchFolder folder;
  std::unique_ptr<TieredStore> store;

  Machine() {
    TieredStore::Options options;
    options.store.directory = folder.path() + "/store";
    options.store.system_directory.clear();
    store = *TieredStore::open(std::move(options));
  }
  std::unique_ptr<RemoteStore> writer(Fleet& fleet, bool keeps_trying = false) const {
    auto host = fleet.host();
    host->use_store(StoreAdmin(*store), keeps_trying);
    return host;
  }
  StoreEntry keep(StoreEntry entry, Origin origin = Origin::compiled) const {
    entry.origin = origin;
    REQUIRE(store->put(entry));
    return entry;
  }
  /// How many marks there are of what the server has.
  std::size_t marks() const {
    const std::string uploads = StoreAdmin(*store).facts().directory + "/uploads";
    std::size_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(uploads)) {
      bytes += file.file_size();
    }
    return bytes / 40;
  }
};

ObjectName name_of(const StoreEntry& entry) { return ObjectName::of(entry.key); }

}  // namespace

TEST_CASE("fault 319: what the queue has no room for is read from the store, without its lease") {
  Fleet fleet;
  fleet.max_queued = 1;
  const Machine machine;
  const auto writer = machine.writer(fleet);
  std::vector<StoreEntry> entries;
  std::vector<RemoteLease> leases;
  for (std::uint64_t i = 0; i < 3; ++i) {
    entries.push_back(machine.keep(make_entry(i)));
    leases.push_back(*writer->await_peer_or_lease(entries[i].request_canonical, kLongerThanATest,
                                                  kNotCancelled, kNothing));
  }
  {
    const std::lock_guard none_ends(fleet.shelf.mutex);
    for (const StoreEntry& entry : entries) {
      writer->put(entry);
    }
  }
  leases.clear();
  CHECK(writer->finish(kLongerThanATest));
  CHECK(writer->stats().stored == 3);
  CHECK(writer->stats().dropped == 0);
  CHECK(finds(*fleet.host(false), entries.back()));
  CHECK(becomes_true([&] {
    const std::lock_guard lock(fleet.shelf.mutex);
    return fleet.shelf.leases.empty();
  }));
}

TEST_CASE("fault 329: a mark is of the object that a server has, and of one that it lost no more") {
  Fleet fleet;
  const Machine machine;
  const auto writer = machine.writer(fleet);
  const StoreEntry entry = machine.keep(make_entry(1));
  {
    const std::lock_guard none_ends(fleet.shelf.mutex);
    writer->put(entry);
    CHECK(writer->push(name_of(entry), false));  // it waits
  }
  CHECK(writer->finish(kLongerThanATest));
  CHECK(writer->stats().stored == 1);
  CHECK_FALSE(writer->push(name_of(entry), false));
  fleet.shelf.objects.clear();
  writer->put(entry);  // compiled again
  CHECK(writer->finish(kLongerThanATest));
  CHECK(finds(*fleet.host(false), entry));
  fleet.shelf.failures = {{RemoteStatus::denied, {}, "NOPERM"}};
  writer->put(entry);
  CHECK_FALSE(writer->finish(kLongerThanATest));
  CHECK(writer->push(name_of(entry), false));  // it was lost
  CHECK(writer->stats().dropped == 1);
  CHECK(writer->stats().queued == 0);
  const auto next = machine.writer(fleet);
  CHECK(next->push(name_of(entry), false));
  CHECK(next->finish(kLongerThanATest));
  CHECK(next->stats().stored == 1);
}

TEST_CASE("fault 329: what another process has uploaded meanwhile is not uploaded again") {
  Fleet fleet;
  Fleet other;  // another server, under the same address
  other.key = fleet.key;
  const Machine machine;
  const StoreEntry first = machine.keep(make_entry(1));
  const StoreEntry second = machine.keep(make_entry(2));
  const auto writer = machine.writer(fleet);
  const auto process = machine.writer(other);
  {
    const std::lock_guard none_ends(fleet.shelf.mutex);
    writer->put(first);
    CHECK(writer->push(name_of(second), false));
    CHECK(process->push(name_of(second), false));
    CHECK(process->finish(kLongerThanATest));
  }
  CHECK(writer->finish(kLongerThanATest));
  CHECK(writer->stats().stored == 2);
  CHECK_FALSE(finds(*fleet.host(false), second));
  CHECK(finds(*other.host(false), second));
}

TEST_CASE("fault 329: a daemon makes up for what its machine compiled, and for nothing else") {
  Fleet fleet;
  const Machine machine;
  const StoreEntry own = machine.keep(make_entry(1));
  const StoreEntry fetched = machine.keep(make_entry(2), Origin::remote);
  StoreBlob blob = make_blob("triton", "own", "bytes");
  REQUIRE(machine.store->put(blob));
  const auto daemon = machine.writer(fleet, /*keeps_trying=*/true);
  REQUIRE(becomes_true([&] { return daemon->stats().stored == 2; }));
  CHECK(daemon->finish(kLongerThanATest));
  CHECK(finds(*fleet.host(false), own));
  CHECK_FALSE(finds(*fleet.host(false), fetched));
}

TEST_CASE("fault 328: an object for whose name there is no room is lost, not acknowledged") {
  Fleet fleet;
  const Machine machine;
  const auto writer = machine.writer(fleet);
  const auto number = [](std::uint64_t i) {
    ObjectName name;
    std::memcpy(name.bytes.data(), &i, sizeof i);
    return name;
  };
  {
    const std::lock_guard none_ends(fleet.shelf.mutex);
    writer->put(make_entry(1));
    for (std::uint64_t i = 0; i < kMaxNames; ++i) {
      CHECK(writer->push(number(i), false));
    }
  }
  writer->finish(milliseconds(0));
  const auto lost = writer->report().not_uploaded;
  CHECK(std::any_of(lost.begin(), lost.end(), [](const RemoteReport::NotUploaded& one) {
    return one.reason == "queue_full" && one.objects == 1;
  }));
}

TEST_CASE("fault 337: marks of evicted objects go when they are most of them") {
  Fleet fleet;
  const Machine machine;
  const StoreEntry own = machine.keep(make_entry(1));
  const StoreEntry fetched = machine.keep(make_entry(2), Origin::remote);
  const auto writer = machine.writer(fleet);
  for (std::uint64_t i = 1; i <= 200; ++i) {
    writer->put(make_entry(i, EntryShape{100}));
    CHECK(writer->finish(kLongerThanATest));
  }
  CHECK(machine.marks() >= 200);
  const auto next = machine.writer(fleet);
  CHECK(machine.marks() == 2);
  CHECK_FALSE(next->push(name_of(own), false));
  CHECK_FALSE(next->push(name_of(fetched), false));
}

TEST_CASE("fault 328: a server that acknowledges an object and has none takes no upload") {
  Fleet fleet;
  const auto writer = fleet.host();
  CHECK(writer->probe().servers.at(0).works);
  REQUIRE(fleet.shelf.objects.size() == 1);
  const RemoteAnswer absent{RemoteStatus::absent, {}, {}};
  SUBCASE("none") { fleet.shelf.objects.clear(); }
  SUBCASE("an older one") { fleet.shelf.objects.begin()->second = "older"; }
  fleet.shelf.failures = {absent, {}};  // it is asked for an object, and takes another one
  const RemoteProbe::Server probe = writer->probe().servers.at(0);
  CHECK_FALSE(probe.works);
  CHECK(probe.detail.find("does not have then") != std::string::npos);
}

namespace {

StoreBlob triton_blob(std::string key, std::string bytes) {
  return make_blob("triton", std::move(key), std::move(bytes));
}

std::optional<StoreBlob> find_blob(RemoteStore& store, std::string_view key,
                                   RemoteTier::Freshness freshness = kUsual) {
  return store.get(*BlobName::make("triton", key), freshness);
}

void put_blob(RemoteStore& store, const StoreBlob& blob) {
  store.put(blob);
  store.finish(milliseconds(10'000));
}

std::string object_of(std::string_view key) {
  return ObjectName::of(BlobName::id_of("triton", key)).hex();
}

std::uint64_t count_rejected(const RemoteStore& store, Rejection why) {
  return store.stats().rejected[static_cast<std::size_t>(why)];
}

std::uint64_t count_gets(const RemoteStore& store) {
  const RemoteHealth health = store.health().at(0);
  const auto& ended = health.traffic[static_cast<std::size_t>(RemoteOp::get)].ended;
  return std::accumulate(ended.begin(), ended.end(), std::uint64_t{0});
}

}  // namespace

TEST_CASE("a blob that one host put is found by another, with its signer") {
  Fleet fleet;
  const auto writer = fleet.host();
  const std::string large(5 << 20, 'x');
  const std::string longest(kMaxBlobKeyBytes, '\xff');
  put_blob(*writer, triton_blob("KEY/add.cubin", large));
  put_blob(*writer, triton_blob("empty", ""));
  put_blob(*writer, triton_blob(longest, "1"));
  CHECK(writer->stats().stored == 3);
  CHECK(fleet.shelf.objects.size() == 3);
  const auto reader = fleet.host(false);
  const auto found = find_blob(*reader, "KEY/add.cubin");
  REQUIRE(found);
  CHECK(found->kind == "triton");
  CHECK(found->key == "KEY/add.cubin");
  CHECK(found->bytes == large);
  CHECK(found->signer == fleet.key.public_key().text());
  CHECK(find_blob(*reader, "empty")->bytes.empty());
  CHECK(find_blob(*reader, longest)->bytes == "1");
  CHECK_FALSE(find_blob(*reader, "other"));
  CHECK_FALSE(reader->get(*BlobName::make("inductor", "KEY/add.cubin"), kUsual));
  CHECK(reader->stats().hits == 3);
  CHECK(reader->stats().misses == 2);
}

TEST_CASE("a blob that is absent is requested once, until it is put or one looks now") {
  Fleet fleet;
  const auto store = fleet.host();
  const auto other = fleet.host();
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(find_blob(*store, "key"));
  }
  CHECK(count_gets(*store) == 1);
  put_blob(*other, triton_blob("key", "theirs"));
  CHECK_FALSE(find_blob(*store, "key"));
  CHECK(find_blob(*store, "key", kNow)->bytes == "theirs");
  put_blob(*store, triton_blob("key", "own"));
  CHECK(find_blob(*store, "key")->bytes == "own");
}

TEST_CASE("a machine without a key uploads no blobs, and one whose key has a scope says so") {
  Fleet fleet;
  put_blob(*fleet.host(false), triton_blob("key", "bytes"));
  CHECK(fleet.shelf.objects.empty());
  for (const char* const limits : {" modules=triton", " expires=2026-01-02"}) {  // fault 281
    const auto writer = fleet.host(true, fleet.key.public_key().text() + limits);
    put_blob(*writer, triton_blob("key", "bytes"));
    CHECK(fleet.shelf.objects.empty());
    CHECK(writer->stats().dropped == 1);
  }
  CHECK(fleet.warnings.find("is not trusted for blobs") != std::string::npos);
}

TEST_CASE("fault 284: what a server has under a blob's name and is no such blob is not used") {
  Fleet fleet;
  const SecretKey stranger = *SecretKey::generate("stranger");
  const StoreBlob blob = triton_blob("key", "bytes");
  const std::string good = seal_blob(blob, &fleet.key);
  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  const std::pair<std::string, Rejection> cases[] = {
      {seal_blob(triton_blob("other", "bytes"), &fleet.key), Rejection::wrong_name},
      {seal_blob(make_blob("inductor", "key", "bytes"), &fleet.key), Rejection::wrong_name},
      {seal_entry(make_entry(1), &fleet.key, false), Rejection::wrong_name},
      {seal_blob(blob, nullptr), Rejection::no_signature},
      {seal_blob(blob, &stranger), Rejection::unknown_signer},
      {flipped, Rejection::bad_hash},
      {good.substr(0, good.size() - 1), Rejection::malformed},
      {"<html>captive portal</html>", Rejection::malformed},
      {"", Rejection::malformed}};
  for (const auto& [object, why] : cases) {
    CAPTURE(name_of(why));
    fleet.shelf.objects[object_of("key")] = object;
    const auto reader = fleet.host(false);
    CHECK_FALSE(find_blob(*reader, "key"));
    CHECK(count_rejected(*reader, why) == 1);
    CHECK_FALSE(find_blob(*reader, "key"));  // is not requested again for a while
    CHECK(count_gets(*reader) == 1);
    CHECK(reader->stats().misses == 2);
  }
  CHECK(fleet.warnings.find("the object is not used") != std::string::npos);
  // A host that makes it puts a good one in its place.
  const auto writer = fleet.host();
  put_blob(*writer, blob);
  CHECK(find_blob(*fleet.host(false), "key")->bytes == "bytes");
}

TEST_CASE("fault 284: invalid blobs open the circuit, and those of an expired key do not") {
  Fleet fleet;
  const auto fill = [&](const SecretKey& key) {
    for (int i = 0; i < 6; ++i) {
      const std::string name = std::to_string(i);
      fleet.shelf.objects[object_of(name)] = seal_blob(triton_blob(name, "bytes"), &key);
    }
  };
  const auto state_after = [&](const std::string& trust) {
    const auto reader = fleet.host(false, trust);
    for (int i = 0; i < 6; ++i) {
      CHECK_FALSE(find_blob(*reader, std::to_string(i)));
    }
    return reader->health().at(0).state;
  };
  fill(*SecretKey::generate("stranger"));
  CHECK(state_after("") == ServerBreaker::State::open);
  fill(fleet.key);
  const std::string own = fleet.key.public_key().text();
  CHECK(state_after(own + " expires=2026-01-02") == ServerBreaker::State::closed);
  CHECK(state_after(own + " modules=triton") == ServerBreaker::State::closed);  // fault 281
}

TEST_CASE("fault 283: a blob that is larger than an object of a remote store is not uploaded") {
  Fleet fleet;
  const auto writer = fleet.host();
  std::string noise(kMaxEnvelopeBytes + 8, '\0');
  std::uint64_t state = 1;
  for (std::size_t at = 0; at < noise.size(); at += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t word = state ^ (state >> 29);
    std::memcpy(noise.data() + at, &word, 8);
  }
  put_blob(*writer, triton_blob("noise", std::move(noise)));
  CHECK(fleet.shelf.objects.empty());
  CHECK(writer->stats().dropped == 1);
  put_blob(*writer, triton_blob("zeros", std::string(kMaxEnvelopeBytes + 8, '\0')));
  CHECK(find_blob(*fleet.host(false), "zeros")->bytes.size() == kMaxEnvelopeBytes + 8);
  // The queue is bounded in bytes.
  put_blob(*writer, triton_blob("too much", std::string((256 << 20) + 1, '\0')));
  CHECK(writer->stats().dropped == 2);
}
