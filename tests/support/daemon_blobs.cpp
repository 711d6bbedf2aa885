// SPDX-License-Identifier: Apache-2.0
// For tests with real servers: puts and gets blobs as a client of cukilnd.
//
//   daemon_blobs SOCKET DIRECTORY get|produce|put KIND KEY FILE
//
// An empty DIRECTORY is a client without a store of its own. FILE is what `put` reads, and `get`
// writes. `get` and `produce`, which is a lookup in single flight, print `found` or `absent`.
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "addons/daemon/client/daemon_client.hpp"
#include "core/store/tiered_store.hpp"

using namespace cukiln;

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

BlobLookup look_up(TieredStore& store, const std::string& op, const BlobName& name) {
  if (op == "get") {
    return store.get(name);
  }
  auto got = get_or_lease(store, name, std::chrono::seconds(60), {});
  if (!got) {
    return std::move(got).error();
  }
  return std::move(got->blob);
}

int run(TieredStore& store, const std::string& op, const BlobName& name, const char* path) {
  if (op == "put") {
    std::ifstream file(path, std::ios::binary);
    const auto done = store.put(StoreBlob::borrowed(
        name.kind, name.key, std::string(std::istreambuf_iterator<char>(file), {})));
    return done ? 0 : fail(done.error().message());
  }
  const auto found = look_up(store, op, name);
  if (!found) {
    return fail(found.error().message());
  }
  if (*found) {
    std::ofstream(path, std::ios::binary) << (*found)->bytes.view();
  }
  std::puts(*found ? "found" : "absent");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    return fail("expected SOCKET DIRECTORY get|produce|put KIND KEY FILE");
  }
  const auto name = BlobName::make(arguments[4], arguments[5]);
  TieredStore::Options options;
  options.store.directory = arguments[2];
  options.store.memory_only = options.store.directory.empty();
  options.store.system_directory.clear();
  options.store.log = [](LogLevel, std::string_view text) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  };
  DaemonClient::Options daemon;
  daemon.sockets = {arguments[1]};
  daemon.required = true;
  daemon.log = Logger(options.store.log);
  const auto store = TieredStore::open(std::move(options));
  if (!name || !store) {
    return fail(!name ? name.error().message() : store.error().message());
  }
  daemon.is_own_store = std::bind_front(&TieredStore::is_disk_at, store->get());
  (*store)->use_daemon(std::make_unique<DaemonClient>(std::move(daemon)));
  return run(**store, arguments[3], *name, arguments[6]);
}
