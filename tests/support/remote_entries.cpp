// SPDX-License-Identifier: Apache-2.0
// For tests with real servers and folders: puts and gets entries of a remote store, as a machine of
// the fleet.
//
//   remote_entries STORES TRUSTED-KEYS KEYFILE get|put TIMEOUT-MS NUMBER[.VARIANT]...
//
// `get` prints `found` or `absent` for each, `put` waits for the uploads. Then both print the
// counters, one a line.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "addons/fleet/remote_store.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

int main(int count, char** arguments) {
  if (count < 7) {
    std::fprintf(stderr, "expected STORES TRUSTED-KEYS KEYFILE get|put TIMEOUT-MS NUMBER...\n");
    return 2;
  }
  const std::chrono::milliseconds timeout(std::atoi(arguments[5]));
  const auto opened = RemoteStore::open(arguments[1], arguments[2], arguments[3], timeout,
                                        Logger([](LogLevel, std::string_view text) {
                                          std::fprintf(stderr, "%.*s\n",
                                                       static_cast<int>(text.size()), text.data());
                                        }));
  if (!opened || *opened == nullptr) {
    std::fprintf(stderr, "%s\n", opened ? "no remote store" : opened.error().message().c_str());
    return 2;
  }
  RemoteStore& store = **opened;
  const bool puts = std::string_view(arguments[4]) == "put";
  for (int i = 6; i < count; ++i) {
    char* rest = nullptr;
    const std::uint64_t number = std::strtoull(arguments[i], &rest, 10);
    const StoreEntry entry =
        make_entry(number, {20'000, *rest == '.' ? std::strtoull(rest + 1, nullptr, 10) : 0});
    if (puts) {
      store.put(entry);
      continue;
    }
    FilesOf files(entry.dependencies);
    const auto start = std::chrono::steady_clock::now();
    const auto found =
        store.find(entry.request_canonical, entry.labels.name, files, RemoteTier::Freshness::now);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    const bool is_right =
        found && found->key == entry.key && found->cubin.image.view() == entry.cubin.image.view();
    std::printf("%s us=%.0f\n", is_right ? "found" : found ? "WRONG" : "absent", took.count());
  }
  if (puts) {
    store.finish(std::max(timeout, std::chrono::milliseconds(2000)), /*extends=*/true);
  }
  const RemoteReport report = store.report();
  std::printf("hits=%llu\nstored=%llu\ndropped=%llu\n",
              static_cast<unsigned long long>(report.hits),
              static_cast<unsigned long long>(report.stored),
              static_cast<unsigned long long>(report.dropped));
  for (const auto& [name, number] : report.requests) {
    std::printf("%s=%llu\n", name.c_str(), static_cast<unsigned long long>(number));
  }
  for (const auto& [name, number] : report.rejected) {
    std::printf("rejected_%s=%llu\n", name.c_str(), static_cast<unsigned long long>(number));
  }
  for (const auto& one : report.not_uploaded) {
    std::printf("lost %s: %s\n", one.reason.c_str(), one.detail.c_str());
  }
  return 0;
}
