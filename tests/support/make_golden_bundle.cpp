// SPDX-License-Identifier: Apache-2.0
// Writes a bundle with known entries, and the public key of its signature, for cache/golden/:
//
//   make_golden_bundle FILE
//
// Run it when the number of the format is raised. No test runs it. The secret key is not kept.
#include <cstdio>

#include "addons/fleet/bundle.hpp"
#include "addons/fleet/envelope.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "support/golden_entries.hpp"

namespace cukiln::testing {
namespace {

Result<void> make(const std::string& path) {
  CUKILN_TRY(const SecretKey key, SecretKey::generate("golden"));
  CUKILN_TRY(BundleWriter bundle, BundleWriter::create(path));
  const std::vector<StoreEntry> entries = golden_entries();
  for (const StoreEntry& entry : entries) {
    CUKILN_CHECK(bundle.add(seal_entry(entry, &key, true)));
  }
  FleetSets sets;
  for (const std::size_t i : {0, 1}) {
    sets.add({entries[i].key, entries[i].dependencies},
             [](const SetTree::Leaf&) { return std::nullopt; });
  }
  CUKILN_CHECK(
      bundle.add(seal_sets(entries[0].request_canonical, sets, &key, FakeClock().now_s())));
  CUKILN_CHECK(bundle.add_blob(seal_blob(golden_blob(), &key)));
  CUKILN_CHECK(bundle.finish());
  return write_file_atomically(path + ".pub", key.public_key().text() + "\n");
}

}  // namespace
}  // namespace cukiln::testing

int main(int count, char** values) {
  const auto made = cukiln::testing::make(count == 2 ? values[1] : "");
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message().c_str());
  }
  return made ? 0 : 1;
}
