// SPDX-License-Identifier: Apache-2.0
#include <cukiln/manifest.hpp>

#include <algorithm>
#include <filesystem>

#include <doctest/doctest.h>

#include "core/base/hasher.hpp"
#include "core/loader/module_request.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;

TEST_CASE("a text that is not JSON is refused with line and column") {
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
  CHECK(name_of(module.sources.at(0)) == scratch / "k/saxpy.cu");
  CHECK(name_of(module.sources.at(1)) == "/abs/b.cu");
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
          {"name": "b", "sources": ["b.cu"], "std_shims": false}]})",
      "/m/n");
  REQUIRE(manifest);
  CHECK(manifest->modules().at(0).std_shims);
  CHECK_FALSE(manifest->modules().at(1).std_shims);
  CHECK(manifest->modules().at(0).working_folder == "/m/w");
  CHECK(std::filesystem::path(manifest->modules().at(1).working_folder).lexically_normal() ==
        "/m/n/");
}

TEST_CASE("a manifest's modules may be linked, with objects relative to its folder") {
  const auto manifest = Manifest::parse(
      R"({"format": 1, "modules": [
          {"name": "a", "sources": ["a.cu", "b.cu"], "link": "lto", "objects": ["lib/x.a", "/y.o"]},
          {"name": "b", "sources": ["a.cu"], "link": "rdc"}, {"name": "c", "sources": ["a.cu"]}]})",
      "/m");
  REQUIRE(manifest);
  CHECK(manifest->modules().at(0).link == LinkMode::lto);
  CHECK(manifest->modules().at(0).objects == std::vector<std::string>{"/m/lib/x.a", "/y.o"});
  CHECK(manifest->modules().at(1).link == LinkMode::rdc);
  CHECK(manifest->modules().at(2).link == LinkMode::none);
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
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "link": "LTO"}]})",
       "modules[0].link: expected \"none\", \"rdc\" or \"lto\", found \"LTO\""},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "objects": [""]}]})",
       "modules[0].objects[0]"},
      {R"({"format": 1, "modules": [{"name": "a", "sources": ["a.cu"], "std_shims": 0}]})",
       "modules[0].std_shims: expected true or false, found 0"},
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

TEST_CASE("a manifest's sources may lie inside a program") {
  static constexpr std::string_view kText = "extern \"C\" __global__ void k() {}";
  const auto manifest = Manifest::parse(
      R"({"format": 1, "modules": [{"name": "m", "sources": ["far/k.cu"], "include": ["inc"]}]})",
      [](const std::string& path) -> Result<Source> {
        return path == "far/k.cu" ? Result<Source>(SourceLiteral{path, kText})
                                  : Error(ErrorCode::not_found, path);
      });
  REQUIRE(manifest);
  REQUIRE(manifest->modules().size() == 1);
  const ModuleSpec& module = manifest->modules().front();
  CHECK(text_of(module.sources.front())->data() == kText.data());
  CHECK(module.include == std::vector<std::string>{"inc"});
  const auto missing =
      Manifest::parse(R"({"format": 1, "modules": [{"name": "m", "sources": ["other.cu"]}]})",
                      [](const std::string& path) -> Result<Source> {
                        return Error(ErrorCode::not_found, path + " is not in this program");
                      });
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message().find("other.cu is not in") != std::string::npos);
}

TEST_CASE("the digest that a constant text comes with is not made again") {
  static constexpr std::string_view kText = "extern \"C\" __global__ void k() {}";
  const auto digest_of = [](std::string_view given) {
    ModuleSpec spec;
    spec.name = "m";
    spec.sources = {SourceLiteral{"k.cu", kText, given}};
    spec.headers = {SourceLiteral{"k.cuh", kText, given}};
    const auto request = make_module_request(spec, {100, 'a'}, {"13.0.88", {}}, {});
    REQUIRE(request);
    CHECK(request->memory_files.back().digest.has_value() == (given.size() == 32));
    return *request->memory_files.front().digest;
  };
  const ContentHash other = hash_of(ByteView("other"));
  CHECK(digest_of(view_of(other)) == other);  // believed: so it was not hashed
  CHECK(digest_of({}) == hash_of(ByteView(kText)));
  CHECK(digest_of("short") == hash_of(ByteView(kText)));
}
