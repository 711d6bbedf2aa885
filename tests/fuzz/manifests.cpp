// SPDX-License-Identifier: Apache-2.0
// libFuzzer: parses manifests. Built by scripts/fuzz.
//
// Rule: a manifest is rejected with a message, or is a list of modules with distinct names and at
// least one source each.

#include <cstdint>
#include <set>
#include <string>

#include "core/base/bytes.hpp"
#include "fuzz/require.hpp"

#include <cukiln/manifest.hpp>

using cukiln::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const cukiln::ByteView json(reinterpret_cast<const char*>(data), size);
  const auto manifest = cukiln::Manifest::parse(json, "/folder");
  if (!manifest) {
    require(manifest.error().code() == cukiln::ErrorCode::invalid_argument,
            "an invalid manifest is an invalid argument", manifest.error().message());
    require(!manifest.error().message().empty(), "and the message says why");
    return 0;
  }
  std::set<std::string> names;
  for (const cukiln::ModuleSpec& module : manifest->modules()) {
    require(!module.sources.empty(), "a module has a source", module.name);
    require(names.insert(module.name).second, "and a name of its own", module.name);
  }
  return 0;
}
