// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include <doctest/doctest.h>

#include "core/base/hasher.hpp"
#include "embedded/kernels_src.hpp"
#include "embedded/manifests.hpp"
#include "embedded/store_schema.hpp"
#include "support/paths.hpp"
#include "support/scratch.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

using namespace cukiln;

TEST_CASE("a shipped module carries the headers that it includes, however deep, and no others") {
  const Manifest shipped = nvfp4::manifest();
  const auto at = std::find_if(shipped.modules().begin(), shipped.modules().end(),
                               [](const ModuleSpec& m) { return m.name == "quantize_nvfp4"; });
  REQUIRE(at != shipped.modules().end());
  std::vector<std::string> carried;
  for (const Source& header : at->headers) {
    carried.push_back(name_of(header));
  }
  CHECK(carried == std::vector<std::string>{"dependent_launch.cuh", "quantize_signatures.cuh",
                                            "types.cuh", "quantize_tiles.cuh", "nvfp4_numerics.cuh",
                                            "bf16.cuh", "scale_layout.cuh"});
}

TEST_CASE("the shipped manifest is the one in the repository, its sources inside the library") {
  const auto from_disk = Manifest::load(testing::sources() + "/cache/manifests/shipped.json");
  REQUIRE(from_disk);
  const Manifest shipped = nvfp4::manifest();
  REQUIRE(shipped.modules().size() == from_disk->modules().size());
  REQUIRE_FALSE(shipped.modules().empty());
  for (std::size_t i = 0; i < shipped.modules().size(); ++i) {
    const ModuleSpec& inside = shipped.modules()[i];
    const ModuleSpec& outside = from_disk->modules()[i];
    CHECK(inside.name == outside.name);
    CHECK(inside.names == outside.names);
    REQUIRE(inside.sources.size() == outside.sources.size());
    for (std::size_t s = 0; s < inside.sources.size(); ++s) {
      CHECK(text_of(inside.sources[s]) == testing::read_all(name_of(outside.sources[s])));
    }
    CHECK_FALSE(inside.headers.empty());  // each is in several files
    const auto folder = std::filesystem::path(name_of(outside.sources.front())).parent_path();
    for (const Source& header : inside.headers) {  // by its path from the source, as on disk
      CHECK(text_of(header) == testing::read_all((folder / name_of(header)).string()));
    }
  }
}

TEST_CASE("the digest of each embedded file, made by the build, is that of its bytes") {
  std::size_t files = 0;
  for (const auto table :
       {embedded::kernels_src(), embedded::manifests(), embedded::store_schema()}) {
    for (const embedded::File& file : table) {
      CAPTURE(file.name);
      CHECK(file.blake2b_256 == view_of(hash_of(file.bytes)));
      ++files;
    }
  }
  CHECK(files > 10);
  const Manifest shipped = nvfp4::manifest();
  for (const ModuleSpec& module : shipped.modules()) {  // and it comes with each text
    for (const auto* texts : {&module.sources, &module.headers}) {
      for (const Source& source : *texts) {
        const SourceLiteral& embedded = std::get<SourceLiteral>(source);
        CHECK(embedded.digest == view_of(hash_of(embedded.text)));
      }
    }
  }
}

TEST_CASE("preload_all is a preload of the whole manifest") {
  StoreOptions options;
  options.memory_only = true;
  auto store = Store::open(options);
  REQUIRE(store);
  LoaderOptions offline;
  offline.offline = true;
  auto loader = KernelLoader::create(*store, offline);
  REQUIRE(loader);
  PreloadOptions no_load;
  no_load.load = false;
  no_load.keep_going = true;
  const auto report = nvfp4::preload_all(*loader, no_load);
  REQUIRE(report);
  CHECK(report->modules.size() >= nvfp4::manifest().modules().size());
  CHECK(report->failed == report->modules.size());  // none is compiled offline
}
