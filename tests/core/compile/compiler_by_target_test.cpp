// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compiler_by_target.hpp"

#include <doctest/doctest.h>

#include "support/scratch.hpp"

using namespace cukiln;
using testing::ScratchFolder;

namespace {

/// Reports the library that it was made for as its version.
class NamedCompiler final : public Compiler {
 public:
  explicit NamedCompiler(std::string library) : library_(std::move(library)) {}
  Result<Toolchain> toolchain() override { return Toolchain{library_, {}}; }
  Result<Toolchain> linker() override { return toolchain(); }
  std::vector<std::string> toolkit_folders() override { return {library_}; }
  void hint_upcoming(std::size_t compiles) override { expected = compiles; }
  Result<CompileOutcome> compile(const CompileJob&) override {
    CompileOutcome outcome;
    outcome.owner = library_;
    return outcome;
  }
  std::size_t expected = 0;

 private:
  const std::string library_;
};

struct Fixture {
  ScratchFolder old, fresh;
  std::string old_library = old.write("lib64/libnvrtc.so.12.6.85", "");
  std::string new_library = fresh.write("lib64/libnvrtc.so.13.0.88", "");
  NvrtcSearch search;
  std::vector<std::string> log;
  int made = 0;

  Fixture() {
    search.system = false;
    search.default_roots = {old.path(), fresh.path()};
  }
  CompilerByTarget compiler() {
    return CompilerByTarget(
        search,
        [this](const std::optional<NvrtcInstall>& install) {
          made += install ? 1 : 0;
          return std::make_unique<NamedCompiler>(install ? install->library : "none");
        },
        Logger([this](LogLevel, std::string_view text) { log.emplace_back(text); }));
  }
};

}  // namespace

TEST_CASE_FIXTURE(
    Fixture, "each target gets the first NVRTC that knows it, with one compiler for each library") {
  CompilerByTarget all = compiler();
  CHECK(all.for_target({90, 'a'}).toolchain()->version == old_library);
  CHECK(log.empty());
  CHECK(all.for_target({100, 'a'}).toolchain()->version == new_library);
  REQUIRE(log.size() == 1);
  CHECK(log.front().find(old_library) != std::string::npos);
  CHECK(log.front().find("sm_100a") != std::string::npos);
  CHECK(&all.for_target({103, 'a'}) == &all.for_target({100, 'a'}));
  CHECK(&all.for_target({80, 0}) == &all.for_target({90, 'a'}));
  CHECK(made == 2);

  CompileRequest request;
  request.target = {100, 'a'};
  FileServer files({}, nullptr);
  const CompileJob job{{request, "k"}, FileSource(files), {}};
  CHECK(all.compile(job)->owner == new_library);
  request.target = {90, 'a'};
  CHECK(all.compile(job)->owner == old_library);
}

TEST_CASE_FIXTURE(Fixture, "a compiler made later gets the hint that was given before") {
  CompilerByTarget all = compiler();
  all.for_target({90, 'a'});
  all.hint_upcoming(7);
  CHECK(static_cast<NamedCompiler&>(all.for_target({90, 'a'})).expected == 7);
  CHECK(static_cast<NamedCompiler&>(all.for_target({100, 'a'})).expected == 7);
}

TEST_CASE_FIXTURE(Fixture, "without an NVRTC, the fallback compiler reports that there is none") {
  search.default_roots.clear();
  CompilerByTarget all = compiler();
  CHECK(all.for_target({100, 'a'}).toolchain()->version == "none");
  CHECK(all.toolkit_folders() == std::vector<std::string>{"none"});
}
