// SPDX-License-Identifier: Apache-2.0
// Name expressions: spellings, and what NVRTC gets.
#include <string>
#include <vector>

#include "core/compile/nvrtc_api.hpp"
#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr const char* kSource = R"(
template <class T> struct Box { T value; };
namespace ns {
template <class T, int N> __global__ void k(T* p) { p[threadIdx.x] *= N; }
template <class T> __global__ void q(T* p) { *p = T(); }
}
extern "C" __global__ void plain(float* p) { *p = 2; }
)";

ModuleSpec named(std::vector<std::string> names) {
  ModuleSpec spec;
  spec.sources = {SourceText{"k.cu", kSource}};
  spec.names = std::move(names);
  spec.targets = {{90, 'a'}};
  return spec;
}

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture, "spellings of a name expression are one key and one entry") {
  const auto loader = open();
  const ModuleReport first = only(loader->compile(named({"ns::k<float, 4>", "plain"})));
  CHECK(first.outcome == Outcome::compiled);
  for (const auto& names :
       std::vector<std::vector<std::string>>{{"ns::k<float,4>", "plain"},
                                             {"&ns::k<float, 4>", "&plain"},
                                             {" ns :: k\t<float ,4>", "plain "},
                                             {"plain", "ns::k<float, 4>", "&ns::k<float,4>"}}) {
    const ModuleReport other = only(loader->compile(named(names)));
    CHECK(other.outcome == Outcome::hit);
    CHECK(other.key == first.key);
    REQUIRE(other.kernels.size() == 2);
    CHECK(other.kernels[0].name == "ns::k<float, 4>");
    CHECK(other.kernels[0].lowered == "_ZN2ns1kIfLi4EEEvPT_");
    CHECK(other.kernels[0].registers > 0);
  }
  CHECK(only(loader->compile(named({"ns::k<float, 5>", "plain"}))).outcome == Outcome::compiled);
  const ModuleReport closers = only(loader->compile(named({"ns::q<Box<int> >"})));
  CHECK(only(loader->compile(named({"&ns::q< ::Box<int>>"}))).outcome == Outcome::compiled);
  CHECK(only(loader->compile(named({"ns::q<Box<int>>"}))).key == closers.key);
}

TEST_CASE_FIXTURE(RealNvrtc, "NVRTC gives the same bytes for a kernel named with and without &") {
  std::vector<NvrtcInstall> installs = {compiler().identity()->install};
  for (const std::string& root : further_roots()) {
    installs.push_back(NvrtcCompiler(real_options(root)).identity()->install);
  }
  for (const NvrtcInstall& install : installs) {
    CAPTURE(install.library);
    NvrtcApi api;
    REQUIRE(api.open(install.library, install.builtins) == "");
    const auto compiled = [&](const std::vector<std::string>& names) {
      wire::Compile job;
      job.unit_path = "k.cu";
      job.unit_text = kSource;
      job.arguments = {"--gpu-architecture=sm_90a", "--std=c++17", "-lineinfo"};
      job.name_expressions = names;
      const wire::Compiled result = compile_with(api, job, OutputKind::cubin, {});
      CHECK_MESSAGE(result.status == wire::CompileStatus::ok, result.log);
      return result;
    };
    const wire::Compiled with = compiled({"&ns::k<float, 4>", "&plain"});
    const wire::Compiled without = compiled({"ns::k<float, 4>", "plain"});
    CHECK(with.image == without.image);
    CHECK(with.lowered == without.lowered);
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "a kernel is found by any spelling of its name") {
  FakeCuda fake;
  fake.set_capability(0, 90);
  const auto loader = open(with_driver(fake.path));
  const ModuleSpec spec = named({"ns::k<float,4>", "&plain"});
  for (const char* name : {"ns::k<float,4>", "&ns::k<float, 4>", "ns::k<float, 4>"}) {
    const auto kernel = loader->get(spec, name);
    REQUIRE_MESSAGE(kernel, kernel.error().message());
    CHECK(kernel->name() == "ns::k<float, 4>");
    CHECK(loader->kernels().find(name).native() == kernel->native());
    CHECK(loader->kernels().find("k/" + std::string(name) + "@sm_90a").native() ==
          kernel->native());
  }
  CHECK(loader->stats().compiles == 1);
  const auto none = loader->get(spec, "ns::k<float,5>");
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::not_found);
}

TEST_CASE_FIXTURE(LoaderFixture, "an error has a name as lists have it") {
  const auto reports = open()->compile(named({"&ns::none<float,4>"}));
  REQUIRE(reports);
  REQUIRE(reports->front().error);
  const std::string message = reports->front().error->message();
  CAPTURE(message);
  CHECK(message.find("No kernel ns::none<float, 4> in k.cu") != std::string::npos);
}
