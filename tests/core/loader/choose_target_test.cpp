// SPDX-License-Identifier: Apache-2.0
#include "core/loader/toolchains.hpp"

#include <doctest/doctest.h>

#include "core/compile/nvrtc_library.hpp"

using namespace cukiln;

namespace {

/// An NVRTC of one version with these targets.
class OneNvrtc final : public Compiler {
 public:
  OneNvrtc(std::string version, std::vector<std::uint32_t> capabilities)
      : version_(std::move(version)), capabilities_(std::move(capabilities)) {}
  Result<Toolchain> toolchain() override { return Toolchain{version_, {}}; }
  Result<Toolchain> linker() override { return toolchain(); }
  Result<std::vector<Target>> targets() override {
    return targets_of_nvrtc(capabilities_, version_);
  }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob&) override { return CompileOutcome(); }

 private:
  const std::string version_;
  const std::vector<std::uint32_t> capabilities_;
};

/// Two NVRTCs, of which one is for sm_107.
class TwoNvrtcs final : public Compiler {
 public:
  Compiler& for_target(Target target) override {
    return target.capability == 107 ? static_cast<Compiler&>(fresh) : old;
  }
  Result<Toolchain> toolchain() override { return old.toolchain(); }
  Result<Toolchain> linker() override { return old.linker(); }
  Result<std::vector<Target>> targets() override { return old.targets(); }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob&) override { return CompileOutcome(); }
  OneNvrtc old{"12.9.86", {90, 100, 103}};
  OneNvrtc fresh{"13.5.37", {90, 100, 103, 107}};
};

struct Row {
  const char* version;
  std::vector<std::uint32_t> capabilities;
  Target wanted;
  Target taken;
};

const std::vector<std::uint32_t> k128 = {75, 80, 90, 100, 101, 120};
const std::vector<std::uint32_t> k129 = {75, 80, 90, 100, 101, 103, 120, 121};
const std::vector<std::uint32_t> k130 = {75, 80, 90, 100, 103, 110, 120, 121};
const std::vector<std::uint32_t> k135 = {75, 80, 90, 100, 103, 107, 110, 120, 121};

}  // namespace

TEST_CASE("the target itself is taken where NVRTC knows it, else the first family that it knows") {
  const std::vector<Row> rows = {
      {"12.8.93", k128, {100, 'a'}, {100, 'a'}}, {"12.9.86", k129, {103, 'a'}, {103, 'a'}},
      {"12.9.86", k129, {103, 'f'}, {103, 'f'}}, {"13.0.88", k130, {107, 'a'}, {100, 'f'}},
      {"13.0.88", k130, {107, 'f'}, {100, 'f'}}, {"13.0.88", k130, {107, 0}, {100, 'f'}},
      {"13.5.37", k135, {107, 'a'}, {107, 'a'}}, {"13.5.37", k135, {121, 'a'}, {121, 'a'}},
      {"13.5.37", k135, {122, 'a'}, {120, 'f'}}, {"13.5.37", k135, {80, 0}, {80, 0}},
      {"13.5.37", k135, {110, 'f'}, {110, 'f'}}, {"12.9.86", k129, {101, 'a'}, {101, 'a'}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.version);
    CAPTURE(row.wanted.name());
    OneNvrtc compiler(row.version, row.capabilities);
    const auto chosen = choose_target(compiler, row.wanted);
    REQUIRE_MESSAGE(chosen, chosen.error().message());
    CHECK(chosen->target == row.taken);
    CHECK(chosen->toolchain.version == row.version);
  }
}

TEST_CASE("fault 170: a target without a family that NVRTC knows is an error that lists all") {
  struct Refused {
    const char* version;
    std::vector<std::uint32_t> capabilities;
    Target wanted;
    const char* says;
  };
  const std::vector<Refused> rows = {
      {"12.8.93",
       k128,
       {103, 'a'},
       "NVRTC 12.8.93 does not support the target sm_103a nor its family (sm_103f, sm_100f); it "
       "supports sm_75, sm_80, sm_90, sm_90a, sm_100, sm_100a, sm_101, sm_101a, sm_120, sm_120a; "
       "install NVRTC 12.9 or later"},
      {"12.8.93", k128, {100, 'f'}, "install NVRTC 12.9 or later"},
      {"13.5.37", k135, {101, 'a'}, "it supports sm_75, "},
      {"13.5.37", k135, {72, 0}, "does not support the target sm_72; it supports sm_75, "},
      {"13.5.37", k135, {130, 'a'}, "nor its family (sm_130f)"},
  };
  for (const Refused& row : rows) {
    CAPTURE(row.wanted.name());
    OneNvrtc compiler(row.version, row.capabilities);
    const auto chosen = choose_target(compiler, row.wanted);
    REQUIRE_FALSE(chosen);
    CHECK(chosen.error().code() == ErrorCode::invalid_argument);
    CAPTURE(chosen.error().message());
    CHECK(chosen.error().message().find(row.says) != std::string::npos);
  }
}

TEST_CASE("of two NVRTCs, one that knows the target is used before a family of the other") {
  TwoNvrtcs both;
  const auto exact = choose_target(both, {107, 'a'});
  REQUIRE(exact);
  CHECK(exact->target == Target{107, 'a'});
  CHECK(exact->toolchain.version == "13.5.37");
  CHECK(choose_target(both, {103, 'a'})->toolchain.version == "12.9.86");
}

TEST_CASE("an NVRTC that cannot list its targets is asked for the target itself") {
  OneNvrtc compiler("12.0.1", {});
  CHECK(choose_target(compiler, {107, 'a'})->target == Target{107, 'a'});
}
