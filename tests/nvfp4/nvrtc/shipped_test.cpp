// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>

#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"
#include "support/paths.hpp"
#include "support/sanitized.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

using namespace cukiln;
using namespace cukiln::testing;

namespace {

const std::string kShippedFolder = testing::sources() + "/kernels_src/nvfp4";

std::string major_minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture,
                  "the shipped kernels compile once for both targets, then hit, by the manifest on "
                  "disk too") {
  const std::vector<Target> targets = {{100, 'a'}, {90, 'a'}};
  const Manifest manifest = nvfp4::manifest().for_targets(targets);
  const auto first = open()->preload(manifest, without_load());
  if (!first) {
    FAIL(first.error().message() << "\n" << first.error().log());
  }
  CHECK(first->compiled == first->modules.size());
  for (const ModuleReport& module : first->modules) {
    CAPTURE(module.name);
    CHECK(module.reason == "not in the store");
    CHECK(!module.not_stored);
    CHECK(module.cubin_bytes > 1000);
    for (const KernelInfo& kernel : module.kernels) {
      CHECK(kernel.registers > 0);
      CHECK(kernel.spill_bytes == 0);
    }
  }
  const auto second = open()->preload(manifest, without_load());
  REQUIRE(second);
  CHECK(second->hits == first->modules.size());
  for (std::size_t i = 0; i < first->modules.size(); ++i) {
    CHECK(first->modules[i].key == second->modules[i].key);
  }
  const auto from_disk = Manifest::load(testing::sources() + "/cache/manifests/shipped.json");
  REQUIRE(from_disk);
  const auto outside = open()->preload(from_disk->for_targets(targets), without_load());
  REQUIRE(outside);
  CHECK(outside->hits == outside->modules.size());
}

TEST_CASE("every NVRTC compiles the GEMMs with tcgen05 for all targets of them that it knows" *
          doctest::skip(kSanitized)) {  // what is tested is the kernels
  constexpr Target kTargets[] = {{100, 'a'}, {100, 'f'}, {103, 'a'}, {103, 'f'},
                                 {107, 'a'}, {107, 'f'}, {110, 'a'}};
  std::map<std::string, std::size_t> compiled;  // by version
  for (const std::string& root : further_roots()) {
    NvrtcCompiler compiler(real_options(root));
    const auto known = compiler.targets();
    REQUIRE(known);
    const std::string version = major_minor(compiler.toolchain()->version);
    for (const Target target : kTargets) {
      if (std::find(known->begin(), known->end(), target) == known->end()) {
        continue;
      }
      CAPTURE(version);
      CAPTURE(target.name());
      // Those with swapped operands are in the module for 16 tokens, all others in that for 8.
      for (const bool swapped : {false, true}) {
        CAPTURE(swapped);
        TestModule module("#define CUKILN_GEMM_TOKENS " + std::string(swapped ? "16" : "8") +
                              "\n#include \"nvfp4_gemm.cu\"\n",
                          {kShippedFolder});
        module.arch(target.capability, target.suffix);
        const CompileResult result = must(module.run(compiler));
        CHECK(result.cubin.kernels.size() == (swapped ? 6 : 11));
        for (const KernelInfo& kernel : result.cubin.kernels) {
          CHECK(kernel.name.find("decode") == std::string::npos);
          CHECK(kernel.spill_bytes == 0);
        }
      }
      ++compiled[version];
    }
  }
  // 12.8 has PTX ISA 8.7, in which `.block16` has another name, and no families.
  CHECK(compiled["12.8"] == 1);
  CHECK(compiled["12.9"] == 4);
  CHECK(compiled["13.5"] == std::size(kTargets));
}

TEST_CASE("the oldest NVRTC compiles every shipped file for sm_100a" * doctest::skip(kSanitized)) {
  NvrtcCompiler compiler(real_options(further_roots().front()));
  REQUIRE(compiler.toolchain());
  CHECK(major_minor(compiler.toolchain()->version) == "12.8");
  for (const auto& entry : std::filesystem::directory_iterator(kShippedFolder)) {
    if (entry.path().extension() == ".cu") {
      CAPTURE(entry.path().string());
      TestModule module("#include \"" + entry.path().filename().string() + "\"\n",
                        {kShippedFolder});
      CHECK(must(module.run(compiler)).observed);
    }
  }
}
