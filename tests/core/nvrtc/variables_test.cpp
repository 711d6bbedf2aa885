// SPDX-License-Identifier: Apache-2.0
// Variables among a module's names: how they are listed, and where they are on a device.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/key/variables.hpp"
#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr const char* kSource = R"(
namespace ns {
__constant__ int table[20];
__device__ float scale = 2;
template <class T> __device__ T bias = T(1);
template <class T> __global__ void k(T* p) { p[threadIdx.x] *= T(scale) * table[threadIdx.x % 20]; }
}
__device__ unsigned long long counter;
extern "C" __global__ void count() { counter = 1; }
)";

ModuleSpec with_variables(std::vector<std::string> names) {
  ModuleSpec spec;
  spec.name = "m";
  spec.sources = {SourceText{"k.cu", kSource}};
  spec.names = std::move(names);
  spec.targets = {{90, 'a'}};
  return spec;
}

const std::vector<std::string> kNames = {"&ns::table", "ns::k<float>", "ns::scale",
                                         "&ns::bias< double >", "count"};

void check_listed(const ModuleReport& report) {
  REQUIRE(report.kernels.size() == 2);
  CHECK(report.kernels[0].name == "count");
  CHECK(report.kernels[1].name == "ns::k<float>");
  REQUIRE(report.variables.size() == 3);
  CHECK(report.variables[0].name == "ns::bias<double>");
  CHECK(report.variables[0].lowered == "_ZN2ns4biasIdEE");
  CHECK(report.variables[0].size_bytes == 8);
  CHECK_FALSE(report.variables[0].is_constant);
  CHECK(report.variables[1].name == "ns::scale");
  CHECK(report.variables[1].size_bytes == 4);
  CHECK(report.variables[2].name == "ns::table");
  CHECK(report.variables[2].size_bytes == 80);
  CHECK(report.variables[2].is_constant);
}

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture, "variables are listed as such, compiled and from the store") {
  const ModuleReport compiled = only(open()->compile(with_variables(kNames)));
  CHECK(compiled.outcome == Outcome::compiled);
  check_listed(compiled);
  const ModuleReport hit = only(open()->compile(with_variables(kNames)));
  CHECK(hit.outcome == Outcome::hit);
  check_listed(hit);
  // a module of variables only is not one without kernels
  const ModuleReport variables = only(open()->compile(with_variables({"&ns::table"})));
  CHECK(variables.kernels.empty());
  CHECK(variables.variables.size() == 1);
}

TEST_CASE("every NVRTC's cubins tell variables from kernels") {
  for (const std::string& root : further_roots()) {
    CAPTURE(root);
    NvrtcCompiler compiler(real_options(root));
    TestModule module(kSource);
    module.arch(90, 'a');
    module.request.options.name_expressions = {"count", "ns::k<float>", "ns::scale", "ns::table"};
    const CompileResult result = must(module.run(compiler));
    CHECK(kernels_among(result.cubin.kernels).size() == 2);
    const std::vector<VariableInfo> variables = variables_among(result.cubin.kernels);
    REQUIRE(variables.size() == 2);
    CHECK(variables[1].is_constant);
    CHECK(variables[1].size_bytes == 80);
  }
}

TEST_CASE_FIXTURE(LoaderFixture,
                  "a variable has an address on each device, by any spelling or by its symbol") {
  FakeCuda fake;
  fake.set_devices(2);
  fake.set_capability(0, 90);
  fake.set_capability(1, 90);
  fake.set_global("_ZN2ns5tableE", 80);
  fake.set_global("_ZN2ns5scaleE", 4);
  fake.set_global("counter", 8);
  const auto loader = open(with_driver(fake.path));
  const auto module = loader->module(with_variables(kNames));
  REQUIRE_MESSAGE(module, module.error().message());
  CHECK(module->kernels().size() == 2);
  const auto table = module->global("ns::table", 0);
  REQUIRE_MESSAGE(table, table.error().message());
  CHECK(table->size_bytes == 80);
  CHECK(table->address != 0);
  for (const char* spelling : {"&ns::table", " & ns :: table", "_ZN2ns5tableE"}) {
    CHECK(module->global(spelling, 0)->address == table->address);
  }
  const auto other = module->global("ns::table", 1);
  REQUIRE(other);
  CHECK(other->address != table->address);
  CHECK(module->global("counter", 0)->size_bytes ==
        8);  // no name of the module, but used by a kernel
  CHECK(fake.current_depth() == 0);
  // The same module again is neither compiled nor loaded.
  CHECK(loader->module(with_variables(kNames))->global("ns::scale", 0)->size_bytes == 4);
  CHECK(fake.calls("cuLibraryLoadData") == 1);
  // No name of a variable is one of a kernel.
  CHECK(!loader->kernels().find("ns::table"));
  CHECK_FALSE(loader->get(with_variables(kNames), "ns::table"));
}

TEST_CASE_FIXTURE(LoaderFixture, "what is no variable is an error that says what there is") {
  FakeCuda fake;
  fake.set_devices(1);
  fake.set_capability(0, 90);
  const auto loader = open(with_driver(fake.path));
  const auto module = loader->module(with_variables({"ns::k<float>", "&ns::table"}));
  REQUIRE(module);
  const auto missing = module->global("ns::none", 0);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == ErrorCode::not_found);
  CHECK(missing.error().message() ==
        "the module has no variable \"ns::none\" (symbol ns::none); its names have ns::table. Add "
        "it to "
        "the names, as \"&ns::none\": that keeps it, and finds the symbol of one in a namespace");
  const auto elsewhere = module->global("ns::table", 3);
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().code() == ErrorCode::invalid_argument);
  const auto nowhere = module->global("ns::table");
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().code() == ErrorCode::invalid_argument);
  CHECK(std::string(nowhere.error().message()).find("no current context") != std::string::npos);
  fake.fail("cuLibraryGetGlobal", 700, 1);
  const auto failed = module->global("ns::table", 0);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code() == ErrorCode::driver);
  const auto empty = Module().global("x", 0);
  REQUIRE_FALSE(empty);
  CHECK(empty.error().code() == ErrorCode::invalid_argument);
  // none of its names: a variable is no kernel, and the ids of later modules stay
  const auto report = loader->preload(Manifest({with_variables({"&ns::scale", "count"})}));
  REQUIRE(report);
  CHECK(loader->kernels().size() == 2);
  CHECK(loader->kernels().at(0).name() == "count");
  CHECK(!loader->kernels().at(1));
}
