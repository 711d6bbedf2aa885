// SPDX-License-Identifier: Apache-2.0
#include <cukiln/manifest.hpp>

#include <algorithm>
#include <filesystem>

#include <doctest/doctest.h>

#include "embedded/kernels_src.hpp"
#include "embedded/manifests.hpp"
#include "embedded/store_schema.hpp"
#include "loader/embedded_digest.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;

TEST_CASE("what is no JSON is told with its line and column") {
  const auto comma = Manifest::parse("{\"format\":1,\n  \"modules\":[],\n}", "/");
  REQUIRE_FALSE(comma);
  CHECK(comma.error().message().find("not JSON: line 3, column 1: ") != std::string::npos);
  const auto comment = Manifest::parse("{\n// of mine\n\"format\":1}", "/");
  REQUIRE_FALSE(comment);
  CHECK(comment.error().message().find("line 2, column 1: ") != std::string::npos);
  CHECK(comment.error().message().find("without comments") != std::string::npos);
}

TEST_CASE("a manifest's paths are relative to its folder, and every field is read") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("m/list.json", R"({"format": 1, "modules": [{
      "name": "saxpy", "sources": ["../k/saxpy.cu", "/abs/b.cu"], "include": ["inc"],
      "define": {"TILE": 128, "FAST": true, "T": "float"}, "flags": ["-lineinfo"],
      "names": ["saxpy<float>"], "targets": ["sm_90a", "compute_100a"]}]})");
  const auto manifest = Manifest::load(path);
  REQUIRE(manifest);
  const ModuleSpec& module = manifest->modules().at(0);
  CHECK(module.sources.at(0).path == scratch / "k/saxpy.cu");
  CHECK(module.sources.at(1).path == "/abs/b.cu");
  CHECK(module.include.at(0) == scratch / "m/inc");
  CHECK(module.define.at("TILE") == "128");
  CHECK(module.define.at("FAST") == "1");
  CHECK(module.define.at("T") == "float");
  CHECK(module.targets == std::vector<Target>{{90, 'a'}, {100, 'a'}});
  CHECK(std::filesystem::equivalent(module.working_folder, scratch / "m"));
}

TEST_CASE("a manifest may say what its flags are relative to; else it is its folder") {
  const auto manifest = Manifest::parse(
      R"({"format": 1, "modules": [
          {"name": "a", "sources": ["a.cu"], "working_folder": "../w"},
          {"name": "b", "sources": ["b.cu"]}]})",
      "/m/n");
  REQUIRE(manifest);
  CHECK(manifest->modules().at(0).working_folder == "/m/w");
  CHECK(std::filesystem::path(manifest->modules().at(1).working_folder).lexically_normal() ==
        "/m/n/");
}

TEST_CASE("a wrong manifest is refused with the place and what was found there") {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not JSON"},
      {"[]", "format"},
      {R"({"format": 2, "modules": []})", "expected 1, found 2"},
      {R"({"format": 1})", "modules"},
      {R"({"format": 1, "modules": [7]})", "modules[0]"},
      {R"({"format": 1, "modules": [{"name": "a"}]})", "sources"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": []}]})", "sources"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": [1]}]})", "modules[0].sources[0]"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "sorces": []}]})",
       "modules[0].sorces"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "targets": ["gfx9"]}]})",
       "modules[0].targets"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "define": {"A": []}}]})",
       "define.A"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "working_folder": 1}]})",
       "modules[0].working_folder"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"]},
           {"name": "a", "sources": ["b.cu"]}]})",
       "unique"},
  };
  for (const auto& [json, expected] : cases) {
    CAPTURE(json);
    const auto manifest = Manifest::parse(json, "/");
    REQUIRE_FALSE(manifest);
    CHECK(manifest.error().code() == ErrorCode::invalid_argument);
    CAPTURE(manifest.error().message());
    CHECK(manifest.error().message().find(expected) != std::string::npos);
  }
  const auto absent = Manifest::load("/nonexistent/m.json");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code() == ErrorCode::not_found);
}

TEST_CASE("a manifest that is nested as deep as it is long is an error like another") {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  for (const std::string& json :
       {deep, R"({"format": 1, "modules": )" + deep + "}", R"({"format": )" + deep + "}"}) {
    const auto manifest = Manifest::parse(json, "/");
    REQUIRE_FALSE(manifest);
    CHECK(manifest.error().code() == ErrorCode::invalid_argument);
    CHECK(manifest.error().message().size() < 200);
  }
}

TEST_CASE("a shipped module carries the headers that it includes, however deep, and no others") {
  const Manifest shipped = Manifest::shipped();
  const auto at = std::find_if(shipped.modules().begin(), shipped.modules().end(),
                               [](const ModuleSpec& m) { return m.name == "quantize_nvfp4"; });
  REQUIRE(at != shipped.modules().end());
  std::vector<std::string> carried;
  for (const Source& header : at->headers) {
    carried.push_back(header.path);
  }
  CHECK(carried == std::vector<std::string>{"dependent_launch.cuh", "quantize_tiles.cuh",
                                            "nvfp4_numerics.cuh", "scale_layout.cuh"});
}

TEST_CASE("the shipped manifest is the one in the repository, its sources inside the library") {
  const auto from_disk =
      Manifest::load(std::string(CUKILN_TEST_SOURCE_DIR) + "/cache/manifests/shipped.json");
  REQUIRE(from_disk);
  const Manifest shipped = Manifest::shipped();
  REQUIRE(shipped.modules().size() == from_disk->modules().size());
  REQUIRE_FALSE(shipped.modules().empty());
  for (std::size_t i = 0; i < shipped.modules().size(); ++i) {
    const ModuleSpec& inside = shipped.modules()[i];
    const ModuleSpec& outside = from_disk->modules()[i];
    CHECK(inside.name == outside.name);
    CHECK(inside.names == outside.names);
    REQUIRE(inside.sources.size() == outside.sources.size());
    for (std::size_t s = 0; s < inside.sources.size(); ++s) {
      CHECK(inside.sources[s].in_memory);
      CHECK(inside.sources[s].content() == testing::read_all(outside.sources[s].path));
    }
    CHECK_FALSE(inside.headers.empty());  // each is in several files
    const auto folder = std::filesystem::path(outside.sources.front().path).parent_path();
    for (const Source& header : inside.headers) {  // by its path from the source, as on disk
      CHECK(header.content() == testing::read_all((folder / header.path).string()));
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
  for (const embedded::File& file : embedded::kernels_src()) {
    CHECK(embedded_digest_of(file.bytes) == hash_of(file.bytes));
    CHECK_FALSE(embedded_digest_of(std::string(file.bytes)));  // elsewhere: known by its place
  }
}
