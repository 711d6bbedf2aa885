// SPDX-License-Identifier: Apache-2.0
// A folder that machines share as their remote store.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "addons/fleet/bounded_calls.hpp"
#include "addons/fleet/remote_store.hpp"
#include "support/scratch.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

namespace fs = std::filesystem;

constexpr milliseconds kLongerThanATest = std::chrono::minutes(20);
constexpr std::int64_t kDay = 24 * 3600;

struct Share {
  ScratchFolder scratch;
  SecretKey signing_key = *SecretKey::generate("fleet");
  std::string warnings;

  Share() { fs::create_directory(root()); }
  std::string root() const { return scratch / "share"; }
  std::string url(const std::string& options = {}) const { return "file://" + root() + options; }

  std::unique_ptr<RemoteStore> host(bool writer = true, const std::string& options = {}) {
    RemoteStore::Options all;
    all.endpoints.push_back(*make_remote_endpoint(url(options)));
    all.trusted = *TrustedKeys::parse(signing_key.public_key().text());
    all.look_up_timeout = kLongerThanATest;
    all.upload_timeout = kLongerThanATest;
    all.log = Logger([this](LogLevel, std::string_view text) { warnings += text; });
    if (writer) {
      all.key = signing_key;
    }
    return std::make_unique<RemoteStore>(std::move(all));
  }
  void put(const StoreEntry& entry, const std::string& options = {}) {
    const auto writer = host(true, options);
    writer->put(entry);
    CHECK(writer->finish(milliseconds(60'000)));
    CHECK(writer->stats().dropped == 0);
  }
  /// The files below the root, without it, sorted.
  std::set<std::string> files() const {
    std::set<std::string> all;
    for (const auto& one : fs::recursive_directory_iterator(root())) {
      if (!one.is_directory()) {
        all.insert(fs::relative(one.path(), root()));
      }
    }
    return all;
  }
  std::string path_of(const CacheKey& key) const {
    const std::string hex = key.hex();
    return root() + "/cukiln6/objects/" + hex.substr(0, 2) + "/" + hex.substr(2, 2) + "/" + hex;
  }
  std::string sets_of(const StoreEntry& entry) const {
    const std::string hex = ObjectName::of_sets(entry.request_canonical).hex();
    return root() + "/cukiln6/sets/" + hex.substr(0, 2) + "/" + hex.substr(2, 2) + "/" + hex;
  }
  Result<RemoteCollection> collect(std::int64_t max_age_s, bool dry_run = false) const {
    return **(*make_remote_endpoint(url()))->collect(max_age_s, dry_run);
  }
};

bool found(RemoteStore& store, const StoreEntry& entry) {
  FilesOf files(entry.dependencies);
  const auto one =
      store.find(entry.request_canonical, entry.labels.name, files, RemoteTier::Freshness::now);
  return one && one->key == entry.key && one->cubin.image.view() == entry.cubin.image.view();
}

std::uint64_t rejections(const RemoteStore& store) {
  const RemoteStats stats = store.stats();
  std::uint64_t sum = 0;
  for (const std::uint64_t one : stats.rejected) {
    sum += one;
  }
  return sum;
}

std::uint64_t ended(const RemoteStore& store, RemoteStatus status) {
  return store.stats().requests[static_cast<std::size_t>(status)];
}

void set_age(const std::string& path, std::int64_t age_s) {
  const timespec then{std::time(nullptr) - age_s, 0};
  const timespec times[] = {then, then};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

std::int64_t age_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return std::time(nullptr) - status.st_mtime;
}

}  // namespace

TEST_CASE("entries are files under the names that the format states, with the mode of the root") {
  Share share;
  ::chmod(share.root().c_str(), 0775);
  const mode_t before = ::umask(0077);
  const StoreEntry entry = make_entry(1);
  share.put(entry);
  ::umask(before);
  CHECK(exists(share.path_of(entry.key)));
  CHECK(mode_of(share.path_of(entry.key)) == 0664);
  CHECK(mode_of(share.sets_of(entry)) == 0775);
  std::vector<std::string> sets;
  for (const auto& one : fs::directory_iterator(share.sets_of(entry))) {
    sets.push_back(one.path().filename());
  }
  REQUIRE(sets.size() == 1);
  CHECK(sets[0].substr(0, 65) == entry.key.hex() + ".");
  CHECK(sets[0].size() == 65 + 32);
  CHECK(share.files().size() == 3);  // and the index of the module; no temporary file
  const auto reader = share.host(false);
  CHECK(found(*reader, entry));
  CHECK_FALSE(found(*reader, make_entry(2)));
  CHECK(rejections(*reader) == 0);
}

// fault 461
TEST_CASE("additions of machines that write the sets of one request together are all kept") {
  Share share;
  constexpr std::uint64_t kHosts = 12;
  std::vector<std::future<void>> hosts;
  for (std::uint64_t i = 0; i < kHosts; ++i) {
    hosts.push_back(std::async(std::launch::async, [&share, i] {
      RemoteStore::Options all;
      all.endpoints.push_back(*make_remote_endpoint(share.url()));
      all.upload_timeout = kLongerThanATest;
      all.key = share.signing_key;
      RemoteStore host(std::move(all));
      host.put(make_entry(1, {2'000, i}));
      CHECK(host.finish(kLongerThanATest));
    }));
  }
  for (auto& host : hosts) {
    host.get();
  }
  const auto reader = share.host(false);
  for (std::uint64_t i = 0; i < kHosts; ++i) {
    CHECK(found(*reader, make_entry(1, {2'000, i})));
  }
}

// fault 462
TEST_CASE("what is torn, swapped, foreign or no file is not used, and a writer replaces it") {
  Share share;
  const StoreEntry entry = make_entry(1);
  const StoreEntry other = make_entry(2);
  share.put(entry);
  share.put(other);
  const std::string path = share.path_of(entry.key);
  const std::string good = read_all(path);
  SUBCASE("cut") { write_all(path, good.substr(0, good.size() / 2)); }
  SUBCASE("empty") { write_all(path, ""); }
  SUBCASE("longer") { write_all(path, good + "x"); }
  SUBCASE("a flipped bit") {
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    write_all(path, bad);
  }
  SUBCASE("another object") { write_all(path, read_all(share.path_of(other.key))); }
  SUBCASE("of a key that is not trusted") {
    const SecretKey stranger = *SecretKey::generate("fleet");
    write_all(path, seal_entry(entry, &stranger, false));
  }
  SUBCASE("not signed") { write_all(path, seal_entry(entry, nullptr, false)); }
  SUBCASE("larger than an object") {
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(kMaxEnvelopeBytes) + 1) == 0);
  }
  SUBCASE("a symbolic link to a good one") {
    write_all(share.scratch / "good", good);
    fs::remove(path);
    fs::create_symlink(share.scratch / "good", path);
  }
  SUBCASE("a FIFO") {
    fs::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  }
  SUBCASE("a folder that is a symbolic link") {
    const std::string folder = fs::path(path).parent_path();
    fs::rename(folder, share.scratch / "elsewhere");
    fs::create_symlink(share.scratch / "elsewhere", folder);
    CHECK_FALSE(found(*share.host(false), entry));
    return;  // an administrator's to remove
  }
  const auto reader = share.host(false);
  CHECK_FALSE(found(*reader, entry));
  CHECK(rejections(*reader) + ended(*reader, RemoteStatus::bad_answer) +
            ended(*reader, RemoteStatus::oversize) ==
        1);
  CHECK(found(*share.host(false), other));
  share.put(entry);
  CHECK(found(*share.host(false), entry));
}

// fault 462
TEST_CASE("one bad set hides no other, and only bad ones are a rejection of the request") {
  Share share;
  const StoreEntry entry = make_entry(1);
  const StoreEntry second = make_entry(1, {20'000, 7});
  share.put(entry);
  share.put(second);
  const std::string folder = share.sets_of(entry);
  write_all(folder + "/" + std::string(64, 'a') + "." + std::string(32, 'b'), "poison");
  write_all(folder + "/.tmp-0123", "half");
  write_all(folder + "/README", "not ours");
  write_all(folder + "/" + std::string(64, 'c') + "." + std::string(32, 'd'),
            std::string(kMaxSetsObjectBytes + 1, 'x'));
  const auto reader = share.host(false);
  CHECK(found(*reader, entry));
  CHECK(found(*reader, second));
  CHECK(rejections(*reader) == 2);  // the poison, by each lookup
  for (const auto& one : fs::directory_iterator(folder)) {
    write_all(one.path(), "poison");
  }
  const auto later = share.host(false);
  CHECK_FALSE(found(*later, entry));
  CHECK(rejections(*later) >= 1);
}

// fault 463
TEST_CASE("unsigned objects are taken from a folder that no other user can write, and only there") {
  Share share;
  ::chmod(share.root().c_str(), 0755);
  const StoreEntry entry = make_entry(1);
  const auto keyless = [&](const std::string& options) {
    return *RemoteStore::open(share.url(options), "", "", kLongerThanATest, Logger());
  };
  CHECK_FALSE(RemoteStore::open(share.url(), "", "", kLongerThanATest, Logger()));
  const auto writer = keyless("?unsigned");
  CHECK(writer->writes());
  writer->put(entry);
  CHECK(writer->finish(milliseconds(60'000)));
  CHECK(writer->stats().stored == 1);
  FilesOf files(entry.dependencies);
  const auto read =
      keyless("?unsigned&ro")
          ->find(entry.request_canonical, entry.labels.name, files, RemoteTier::Freshness::now);
  REQUIRE(read);
  CHECK(is_unsigned(read->signer));
  CHECK_FALSE(found(*share.host(false), entry));  // without ?unsigned

  SUBCASE("a group may write the root") { ::chmod(share.root().c_str(), 0775); }
  SUBCASE("everybody may write a folder on the way") {
    ::chmod(fs::path(share.path_of(entry.key)).parent_path().c_str(), 0777);
  }
  SUBCASE("everybody may write the file") { ::chmod(share.path_of(entry.key).c_str(), 0666); }
  SUBCASE("the file is of another user") {
    if (::chown(share.path_of(entry.key).c_str(), 4711, 4711) != 0) {
      return;  // only root can make one
    }
  }
  const auto reader = share.host(false, "?unsigned");
  CHECK_FALSE(found(*reader, entry));
  CHECK(ended(*reader, RemoteStatus::untrusted) == 1);
  CHECK(share.warnings.find("may not hold unsigned objects") != std::string::npos);
}

TEST_CASE("the options and the path of a folder's address are checked") {
  const ScratchFolder folder;
  const auto error = [](const std::string& url) {
    const auto made = make_remote_endpoint(url);
    return made ? std::string() : made.error().message();
  };
  CHECK(error("file:///srv/kernels?ro&unsigned").empty());
  CHECK(error("file://server/kernels") ==
        "a folder's address is file://server/kernels; expected file:///absolute/path");
  CHECK(error("file:///srv?rw").find("unknown option \"rw\"") == 0);
  CHECK(error("file:///srv?ca=/etc/ca.pem").find("unknown option \"ca\"") == 0);
  CHECK(error("redis://cache?ro").find("unknown option \"ro\"") == 0);
  CHECK((*make_remote_endpoint("file:///srv/kernels//?ro"))->where() == "file:///srv/kernels");

  const auto missing = make_remote_endpoint("file://" + (folder / "not-mounted"));
  const RemoteAnswer answer =
      (*missing)->get(ObjectName::of_sets("x"), steady_clock::now() + kLongerThanATest);
  CHECK(answer.status == RemoteStatus::unreachable);
  CHECK((*missing)
            ->put(ObjectName::of_sets("x"), "x", steady_clock::now() + kLongerThanATest)
            .status == RemoteStatus::unreachable);
  CHECK_FALSE(exists(folder / "not-mounted"));  // a root is never made: it may be a mount
}

TEST_CASE("a folder of ?ro is read and never written, with a key neither") {
  Share share;
  const StoreEntry entry = make_entry(1);
  share.put(entry);
  set_age(share.path_of(entry.key), 2 * kDay);
  const auto before = share.files();
  const auto host = share.host(true, "?ro");
  CHECK_FALSE(host->writes());
  CHECK(found(*host, entry));
  host->put(make_entry(2));
  CHECK(host->finish(milliseconds(60'000)));
  CHECK(host->stats().dropped == 0);
  CHECK(host->probe().servers[0].works);
  CHECK(share.files() == before);
  CHECK(age_of(share.path_of(entry.key)) >= 2 * kDay);
}

TEST_CASE("a use renews the time of a file once a day at most") {
  Share share;
  const StoreEntry entry = make_entry(1);
  share.put(entry);
  set_age(share.path_of(entry.key), kDay / 2);
  CHECK(found(*share.host(), entry));
  CHECK(age_of(share.path_of(entry.key)) >= kDay / 2);
  set_age(share.path_of(entry.key), kDay + 60);
  CHECK(found(*share.host(), entry));
  CHECK(age_of(share.path_of(entry.key)) < kDay / 2);
}

// fault 467
TEST_CASE("a collection removes what is old, keeps what is young or used, and nothing of others") {
  Share share;
  const StoreEntry old = make_entry(1);
  const StoreEntry young = make_entry(2);
  const StoreEntry used = make_entry(3);
  for (const StoreEntry& entry : {old, young, used}) {
    share.put(entry);
  }
  const std::string foreign = share.root() + "/cukiln6/objects/README";
  write_all(foreign, "x");
  write_all(share.root() + "/cukiln6/objects/ab", "x");
  const std::string half = fs::path(share.path_of(young.key)).parent_path() / ".tmp-00";
  write_all(half, "half");
  for (const std::string& file : share.files()) {
    set_age(share.root() + "/" + file, 40 * kDay);
  }
  CHECK(found(*share.host(), used));  // renews its time
  set_age(share.path_of(young.key), 20 * kDay);
  const auto before = share.files();
  const auto would = share.collect(30 * kDay, /*dry_run=*/true);
  REQUIRE(would);
  CHECK(share.files() == before);
  const auto report = share.collect(30 * kDay);
  REQUIRE(report);
  CHECK(report->files == would->files);
  CHECK(report->files == 6);  // the entry, its set, three indexes, the temporary file
  CHECK_FALSE(exists(share.sets_of(old)));
  CHECK_FALSE(exists(half));
  CHECK(exists(foreign));
  CHECK_FALSE(found(*share.host(false), old));
  CHECK(found(*share.host(false), young));  // its set is old, and of use
  CHECK(found(*share.host(false), used));
  share.put(old);  // the folders that were removed are made again
  CHECK(found(*share.host(false), old));
  // Never what may be in progress.
  REQUIRE(share.collect(0));
  CHECK(found(*share.host(false), old));
}

// fault 465
TEST_CASE("a call that hangs costs its deadline once, leaves one thread, and stops no other root") {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::promise<void> began;
  const auto calls = BoundedCalls::of("/hangs");
  const auto soon = [] { return steady_clock::now() + milliseconds(50); };
  const auto later = [] { return steady_clock::now() + kLongerThanATest; };
  std::atomic<int> run{0};
  CHECK(calls->run([&] { ++run; }, later()) == BoundedCalls::Ended::done);
  CHECK(calls->run(
            [&began, released] {
              began.set_value();
              released.wait();
            },
            soon()) == BoundedCalls::Ended::hung);
  began.get_future().wait();
  const auto start = steady_clock::now();
  for (int i = 0; i < 100; ++i) {  // each at once, also of an endpoint that was made later
    CHECK(BoundedCalls::of("/hangs")->run([&] { ++run; }, later()) == BoundedCalls::Ended::hung);
  }
  CHECK(steady_clock::now() - start < kLongerThanATest / 2);
  CHECK(run == 1);
  CHECK(BoundedCalls::of("/other")->run([&] { ++run; }, later()) == BoundedCalls::Ended::done);
  release.set_value();
  while (calls->run([&] { ++run; }, later()) == BoundedCalls::Ended::hung) {
    std::this_thread::yield();
  }
  CHECK(run == 3);
}

// fault 465
TEST_CASE(
    "a call that waits for a slow one is not begun after its deadline, and nothing has hung") {
  const auto calls = BoundedCalls::of("/slow");
  std::promise<void> release;
  std::promise<void> began;
  auto slow = std::async(std::launch::async, [&] {
    return calls->run(
        [&] {
          began.set_value();
          release.get_future().wait();
        },
        steady_clock::now() + kLongerThanATest);
  });
  began.get_future().wait();
  std::atomic<bool> run{false};
  CHECK(calls->run([&] { run = true; }, steady_clock::now() + milliseconds(20)) ==
        BoundedCalls::Ended::late);
  release.set_value();
  CHECK(slow.get() == BoundedCalls::Ended::done);
  CHECK(calls->run([] { throw std::bad_alloc(); }, steady_clock::now() + kLongerThanATest) ==
        BoundedCalls::Ended::done);
  CHECK_FALSE(run);
}
