// SPDX-License-Identifier: Apache-2.0
// Blobs of other compilers by way of cukilnd.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>

#include "addons/daemon/client/daemon_client.hpp"
#include "addons/daemon/client/object_message.hpp"
#include "core/store/tiered_store.hpp"
#include "support/daemon_process.hpp"
#include "support/fake_daemon.hpp"
#include "support/raw_client.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::FakeDaemon;
using cukiln::testing::RawClient;
using std::chrono::seconds;
using wire::DaemonOp;
using Fixture = cukiln::testing::DaemonFixture;

namespace {

const BlobName kName = *BlobName::make("triton", "key");

/// A client's store, in `directory`; in memory only if that is empty.
std::unique_ptr<TieredStore> open_client(const std::string& socket, const std::string& directory) {
  TieredStore::Options options;
  options.store.directory = directory;
  options.store.memory_only = directory.empty();
  options.store.system_directory.clear();
  auto store = TieredStore::open(std::move(options));
  REQUIRE(store);
  DaemonClient::Options daemon;
  daemon.sockets = {socket};
  daemon.is_own_store = std::bind_front(&TieredStore::is_disk_at, store->get());
  (*store)->use_daemon(std::make_unique<DaemonClient>(std::move(daemon)));
  return *std::move(store);
}

/// The client is another one that has just begun: a busy machine's daemon may not greet in time.
std::optional<std::string> get_by(const std::string& socket, const std::string& directory) {
  const auto found = *open_client(socket, directory)->get(kName);
  return found ? std::optional(std::string(found->bytes)) : std::nullopt;
}

bool put_by(const std::string& socket, const std::string& directory, ByteView bytes) {
  return open_client(socket, directory)
      ->put(StoreBlob::borrowed(kName.kind, kName.key, bytes))
      .has_value();
}

UniqueFd sealed(std::initializer_list<ByteView> parts) {
  auto file = wire::make_sealed_file(parts);
  REQUIRE(file);
  return *std::move(file);
}

UniqueFd blob_file(ByteView kind, ByteView key, ByteView bytes) {
  auto file = seal_object(
      encode(StoreBlob{std::string(kind), std::string(key), SharedBytes::borrowed(bytes)}));
  REQUIRE(file);
  return *std::move(file);
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "fault 252: clients with other stores, or none, have one daemon's blobs") {
  const auto daemon = start();
  const std::string bytes = std::string(3 << 20, 'b') + std::string("\0end", 4);
  CHECK_FALSE(get_by(socket, scratch / "other"));
  REQUIRE(becomes_true([&] { return put_by(socket, {}, bytes); }));
  CHECK(becomes_true([&] { return get_by(socket, scratch / "third") == bytes; }));
  CHECK(becomes_true([&] { return get_by(socket, {}) == bytes; }));
  CHECK(counter("requests_put_blob_ok") == 1);
  CHECK(counter("requests_get_blob_ok") >= 2);
  // A client with a store of its own has both.
  REQUIRE(becomes_true([&] {
    return put_by(socket, scratch / "other", "of the other") &&
           get_by(socket, {}) == "of the other";
  }));
  CHECK(get_by("/nowhere", scratch / "other") == "of the other");
  CHECK(get_by("/nowhere", scratch / "third") == std::nullopt);
}

TEST_CASE_FIXTURE(Fixture, "a client that has the daemon's store open asks no daemon for blobs") {
  const auto daemon = start();
  CHECK(put_by(socket, scratch / "store", "b"));
  CHECK(get_by(socket, scratch / "store") == "b");
  CHECK(counter("requests_put_blob_ok") == 0);
  CHECK(counter("requests_get_blob_ok") + counter("requests_get_blob_miss") == 0);
  CHECK(becomes_true([&] { return get_by(socket, {}) == "b"; }));
}

TEST_CASE_FIXTURE(Fixture, "fault 253: an older daemon, a killed one and none: the local store") {
  SUBCASE("older") {
    wire::Greeting greeting;
    greeting.oldest_version = greeting.newest_version = wire::kDaemonProtocol;
    const FakeDaemon older(socket, greeting.encode(), FakeDaemon::HangsUp::last);
    CHECK(put_by(socket, scratch / "own", "b"));
    CHECK(get_by(socket, scratch / "own") == "b");
    CHECK_FALSE(put_by(socket, {}, "b"));
    CHECK_FALSE(get_by(socket, {}));
    const auto hello = wire::DaemonHello{wire::kDaemonProtocol, 1, "process_daemon_test"}.encode();
    const int most = static_cast<int>(wire::kDaemonHeaderBytes + hello.size()) + 64;
    CHECK(older.heard <= older.accepted * most);  // no request
  }
  SUBCASE("killed") {
    auto daemon = start();
    const auto client = open_client(socket, scratch / "own");
    REQUIRE(client->put(StoreBlob::borrowed(kName.kind, kName.key, "b")));
    daemon->signal(SIGKILL);
    daemon->wait();
    CHECK((**client->get(kName)).bytes == "b");
    CHECK(client->put(StoreBlob::borrowed(kName.kind, kName.key, "c")));
    CHECK((**client->get(kName)).bytes == "c");
  }
  SUBCASE("none") {
    CHECK(put_by(socket, scratch / "own", "b"));
    CHECK(get_by(socket, scratch / "own") == "b");
    CHECK_FALSE(put_by(socket, {}, "b"));
  }
}

TEST_CASE_FIXTURE(Fixture, "fault 254: malformed blobs close their connection and no other") {
  const auto daemon = start();
  const std::string body = wire::BlobWanted{"triton", "key"}.encode();
  UniqueFd hole(::memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(hole.get(), 100 << 20) == 0);
  REQUIRE(::fcntl(hole.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
  const UniqueFd open_file(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::write(open_file.get(), "x", 1) == 1);
  const UniqueFd right = blob_file("triton", "key", "bytes");
  struct {
    const char* what;
    DaemonOp op;
    std::string body;
    UniqueFd file;
  } table[] = {
      {"no name", DaemonOp::get_blob, {}, {}},
      {"a short name", DaemonOp::get_blob, body.substr(0, body.size() - 1), {}},
      {"no file", DaemonOp::put_blob, {}, {}},
      {"a file and a body", DaemonOp::put_blob, body, UniqueFd(::dup(right.get()))},
      {"an empty file", DaemonOp::put_blob, {}, sealed({})},
      {"no checksum", DaemonOp::put_blob, {}, sealed({body, "bytes"})},
      {"a wrong checksum", DaemonOp::put_blob, {}, sealed({body, std::string(40, 'x')})},
      {"an entry", DaemonOp::put_blob, {}, blob_file("", "key", "x")},
      {"a hole", DaemonOp::put_blob, {}, std::move(hole)},
      {"no seal", DaemonOp::put_blob, {}, UniqueFd(::dup(open_file.get()))},
  };
  std::uint64_t errors = 0;
  for (const auto& [what, op, text, file] : table) {
    CAPTURE(what);
    const RawClient client(socket);
    client.frame(op, 1, text, file.get());
    CHECK(client.hung_up(seconds(20)));
    CHECK(counter("protocol_errors") == ++errors);
  }
  // fault 240: a name that no store takes is an error, and the connection goes on.
  const RawClient client(socket);
  const std::pair<std::string, std::string> names[] = {
      {"a/b", "key"}, {std::string(65, 'k'), "key"}, {"k", ""}, {"k", std::string(4097, 'k')}};
  for (const auto& [kind, key] : names) {
    client.frame(DaemonOp::put_blob, 1, {}, blob_file(kind, key, "x").get());
    CHECK(client.outcome() == DaemonOp::error);
    client.frame(DaemonOp::get_blob, 2, wire::BlobWanted{kind, key}.encode());
    CHECK(client.outcome() == DaemonOp::error);
  }
  client.frame(DaemonOp::put_blob, 3, {}, right.get());
  CHECK(client.outcome() == DaemonOp::done);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 254: a blob larger than the store's cap is refused with the cap") {
  const auto daemon = start({}, {"CUKILN_MAX_SIZE=2MiB"});
  CHECK(becomes_true([&] {
    const RawClient raw(socket);
    raw.frame(DaemonOp::put_blob, 1, {}, blob_file("k", "k", std::string(3 << 20, 'x')).get());
    return raw.outcome() == DaemonOp::error;
  }));
  CHECK(counter("requests_put_blob_error") >= 1);
  CHECK(counter("requests_put_blob_ok") == 0);
}
