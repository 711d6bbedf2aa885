// SPDX-License-Identifier: Apache-2.0
// For tests with real servers: puts and gets blobs of a remote store, as a machine of the fleet.
//
//   remote_blobs STORES TRUSTED-KEYS KEYFILE get|put KIND KEY FILE
//
// An empty KEYFILE is a machine that only reads. FILE is what `put` reads, and `get` writes. `get`
// prints `found` with the signers, or `absent`; both print the counters.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "addons/fleet/remote_store.hpp"

using namespace cukiln;

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

int run(RemoteStore& store, const std::string& op, const BlobName& name, const char* path) {
  if (op == "put") {
    std::ifstream file(path, std::ios::binary);
    store.put(StoreBlob::borrowed(name.kind, name.key,
                                  std::string(std::istreambuf_iterator<char>(file), {})));
    store.finish(std::chrono::seconds(10), /*extends=*/true);  // a server that is away gets no more
  } else if (const auto found = store.get(name, RemoteTier::Freshness::usual)) {
    std::ofstream(path, std::ios::binary) << found->bytes.view();
    std::printf("found %s\n", found->signer.c_str());
  } else {
    std::puts("absent");
  }
  const RemoteStats stats = store.stats();
  std::printf("hits=%llu stored=%llu dropped=%llu\n", static_cast<unsigned long long>(stats.hits),
              static_cast<unsigned long long>(stats.stored),
              static_cast<unsigned long long>(stats.dropped));
  for (int why = 0; why < kRejections; ++why) {
    if (stats.rejected[static_cast<std::size_t>(why)] != 0) {
      std::printf("rejected=%s\n", name_of(static_cast<Rejection>(why)));
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 8) {
    return fail("expected STORES TRUSTED-KEYS KEYFILE get|put KIND KEY FILE");
  }
  const auto name = BlobName::make(arguments[5], arguments[6]);
  const auto store = RemoteStore::open(
      arguments[1], arguments[2], arguments[3], std::chrono::seconds(10),
      Logger([](LogLevel, std::string_view text) {
        std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
      }));
  if (!name || !store || *store == nullptr) {
    return fail(!name ? name.error().message() : store ? "no store" : store.error().message());
  }
  return run(**store, arguments[4], *name, arguments[7]);
}
