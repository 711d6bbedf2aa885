// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_parts.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "core/base/result.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;

namespace {

using Indices = std::vector<std::size_t>;
using Names = std::vector<std::string>;

ModuleSpec linked_spec(const std::vector<std::pair<std::string, std::string>>& sources,
                       Names names = {}) {
  ModuleSpec spec;
  spec.name = "m";
  for (const auto& [path, text] : sources) {
    spec.sources.push_back(SourceText{path, text});
  }
  spec.names = std::move(names);
  spec.link = LinkMode::rdc;
  return spec;
}

ModuleRequest request_of(const ModuleSpec& spec) {
  auto made = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {}, nullptr,
                                  {"13.0", hash_of("nvjitlink")});
  REQUIRE_MESSAGE(made, made.error().message());
  return *std::move(made);
}

/// A compiler of parts: which of a part's expressions it resolves, by the name of its source.
struct FakeParts {
  std::map<std::string, Names> resolves;
  Names compiled;  ///< `a.cu k<int>`, in order
  std::map<std::string, DependencySet> dependencies;
  std::string broken;  ///< a source that never compiles

  Result<BuiltPart> build(const ModuleRequest& part) {
    std::string line = part.source;
    std::string log;
    BuiltPart built;
    for (const std::string& name : part.request.options.name_expressions) {
      line += " " + name;
      const Names& known = resolves[part.source];
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        log += "__nv_name_map(2): error: identifier is undefined\n  #pragma nv_mangled_name &" +
               name + "\n";
      }
      KernelInfo kernel;
      kernel.name = name;
      kernel.lowered = "lowered " + name;
      built.cubin.kernels.push_back(kernel);
    }
    compiled.push_back(line);
    if (part.source == broken) {
      log = "a.cu(1): error: expected a declaration\n";
    }
    if (!log.empty()) {
      return Error(ErrorCode::compile_failed, part.source + " does not compile", log);
    }
    built.cubin.image = SharedBytes("image of " + part.source);
    built.dependencies = dependencies[part.source];
    return built;
  }
};

Result<LinkParts> build_with(FakeParts& parts, const ModuleSpec& spec) {
  const ModuleRequest whole = request_of(spec);
  const auto files = whole.files(nullptr);
  return build_parts(
      whole, *files, [&](const ModuleRequest& part) { return parts.build(part); }, 1);
}

constexpr const char* kKernel = "template <class T> __global__ void k(T* p) {}\n";

}  // namespace

TEST_CASE("an expression goes to the source that declares its kernel, else to one that names it") {
  const std::vector<VirtualSource> sources = {
      {"/cukiln/src/a.cu", SharedBytes("int other; // mykernel, kern\n")},
      {"/cukiln/src/b.cu", SharedBytes("void f() { kernel; }\n")},
      {"/cukiln/src/c.cu",
       SharedBytes("namespace n { template <int N> __global__ void kernel() {} }")},
  };
  for (const char* expression : {"n::kernel<4>", "kernel<n::kernel_type>", "&n::kernel<(4 > 3)>"}) {
    CAPTURE(expression);
    CHECK(candidates_of(expression, sources) == Indices{2, 1, 0});
  }
  CHECK(candidates_of("other", sources) == Indices{0, 1, 2});
  CHECK(candidates_of("absent<int>", sources) == Indices{0, 1, 2});
  CHECK(candidates_of("", sources) == Indices{0, 1, 2});
}

TEST_CASE("each source is a part, with its expressions, in the order of the sources") {
  FakeParts parts;
  parts.resolves = {{"a.cu", {"g"}}, {"b.cu", {"k<int>", "k<float>"}}};
  const auto built =
      build_with(parts, linked_spec({{"a.cu", "__global__ void g() {}"}, {"b.cu", kKernel}},
                                    {"k<int>", "g", "k<float>"}));
  REQUIRE(built);
  CHECK(parts.compiled == Names{"a.cu g", "b.cu k<float> k<int>"});
  REQUIRE(built->parts.size() == 2);
  CHECK(built->parts[0].name == "/cukiln/src/a.cu");
  CHECK(built->parts[0].image.view() == "image of a.cu");
  CHECK(built->parts[1].image.view() == "image of b.cu");
  REQUIRE(built->symbols.size() == 3);
  CHECK(built->symbols[0].lowered == "lowered g");
  CHECK(built->observed);
}

// fault 291
TEST_CASE(
    "an expression that a source cannot resolve goes to the next, and only those compile anew") {
  FakeParts parts;
  parts.resolves = {{"b.cu", {}}, {"a.cu", {"k<int>"}}, {"c.cu", {}}};
  // a.cu includes the template, and only b.cu has the word, in a comment
  const auto built = build_with(
      parts, linked_spec({{"a.cu", "#include \"kernels.cuh\""}, {"b.cu", "// k"}, {"c.cu", ""}},
                         {"k<int>"}));
  REQUIRE(built);
  CHECK(parts.compiled == Names{"a.cu", "b.cu k<int>", "c.cu", "a.cu k<int>", "b.cu"});
}

TEST_CASE("an expression that no source resolves is the error of the likeliest") {
  FakeParts parts;
  const auto built = build_with(
      parts, linked_spec({{"a.cu", ""}, {"b.cu", kKernel}, {"c.cu", ""}}, {"k<Missing>"}));
  REQUIRE_FALSE(built);
  CHECK(built.error().message() == "b.cu does not compile");
}

TEST_CASE("a symbol that no source resolves is left to the link if there are objects") {
  const ScratchFolder scratch;
  FakeParts parts;
  parts.resolves = {{"b.cu", {"k<int>"}}};
  ModuleSpec spec = linked_spec({{"a.cu", ""}, {"b.cu", kKernel}}, {"k<int>", "of_object"});
  spec.objects = {scratch.write("x.o", "object")};
  const auto built = build_with(parts, spec);
  REQUIRE(built);
  CHECK(parts.compiled ==
        Names{"a.cu of_object", "b.cu k<int>", "a.cu", "b.cu k<int> of_object", "b.cu k<int>"});
  REQUIRE(built->symbols.size() == 1);
  CHECK(built->symbols[0].name == "k<int>");
  spec.names = {"k<Missing>"};  // a template of an object has no name but its symbol
  const auto missing = build_with(parts, spec);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message() == "b.cu does not compile");
}

TEST_CASE("a source that does not compile is reported as such, whatever its expressions") {
  FakeParts parts;
  parts.broken = "a.cu";
  const auto built = build_with(parts, linked_spec({{"a.cu", kKernel}, {"b.cu", ""}}, {"k<int>"}));
  REQUIRE_FALSE(built);
  CHECK(built.error().message() == "a.cu does not compile");
  CHECK(parts.compiled.size() == 2);
}

TEST_CASE("parts are compiled at once, and their order is that of the sources") {
  std::vector<std::pair<std::string, std::string>> sources;
  for (int i = 0; i < 20; ++i) {
    sources.emplace_back(std::to_string(i) + ".cu", std::to_string(i));
  }
  const ModuleSpec spec = linked_spec(sources);
  const ModuleRequest whole = request_of(spec);
  const auto files = whole.files(nullptr);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto build = [&](const ModuleRequest& part) -> Result<BuiltPart> {
    const int now = ++running;
    for (int known = most; known < now && !most.compare_exchange_weak(known, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --running;
    BuiltPart built;
    built.cubin.image = SharedBytes(part.source);
    return built;
  };
  const auto built = build_parts(whole, *files, build, 4);
  REQUIRE(built);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    CHECK(built->parts[i].image.view() == sources[i].first);
  }
  CHECK(most > 1);
  CHECK(most <= 4);
}

TEST_CASE("a part's key depends on its own source and names, and on no other part") {
  const ModuleRequest whole =
      request_of(linked_spec({{"a.cu", "int a;"}, {"b.cu", kKernel}}, {"k<int>"}));
  const ModuleRequest edited =
      request_of(linked_spec({{"a.cu", "int b;"}, {"b.cu", kKernel}}, {"k<int>"}));
  CHECK(whole.digest != edited.digest);
  CHECK(part_of(whole, 1, {"k<int>"}).digest == part_of(edited, 1, {"k<int>"}).digest);
  CHECK(part_of(whole, 0, {}).digest != part_of(edited, 0, {}).digest);
  CHECK(part_of(whole, 1, {}).digest != part_of(whole, 1, {"k<int>"}).digest);
  const ModuleRequest part = part_of(whole, 1, {"k<int>"});
  CHECK_FALSE(part.request.link);
  CHECK(part.request.sources.size() == 1);
  CHECK(part.labels.source == "b.cu");
  CHECK(part.name == "m");
}

TEST_CASE("the sets of the parts become one, with one identity class for each file") {
  const ScratchFolder scratch;
  scratch.write("x/one.h", "1");
  scratch.write("y/two.h", "2");
  std::filesystem::create_hard_link(scratch / "x/one.h", scratch / "y/one.h");
  const std::vector<VirtualRoot> roots = {{"/cukiln/inc/0", {scratch / "x"}},
                                          {"/cukiln/inc/1", {scratch / "y"}}};
  FileServer files(roots, nullptr);
  const ContentHash one = hash_of("1");
  const ContentHash two = hash_of("2");
  DependencySet a;
  a.add_absent("/cukiln/inc/0/none.h");
  a.add_file("/cukiln/inc/0/one.h", one);
  DependencySet b;
  b.add_file("/cukiln/inc/1/two.h", two);
  b.add_file("/cukiln/inc/1/one.h", one);  // the file of a, by another name
  b.add_absent("/cukiln/inc/0/none.h");
  DependencySet merged;
  CHECK(merge_dependencies(a, files, merged));
  CHECK(merged == a);
  CHECK(merge_dependencies(b, files, merged));
  REQUIRE(merged.observations.size() == 4);
  CHECK(merged.observations[2].path == "/cukiln/inc/1/two.h");
  CHECK(merged.observations[2].identity == 1);
  CHECK(merged.observations[3].path == "/cukiln/inc/1/one.h");
  CHECK(merged.observations[3].identity == 0);
  FileServer now(roots, nullptr);
  CHECK(now.check(merged).what == FileServer::Mismatch::What::none);
}

// fault 292
TEST_CASE("a header that changes between two parts keeps the link out of the store") {
  FakeParts parts;
  parts.dependencies["a.cu"].add_file("/cukiln/src/x.h", hash_of("before"));
  parts.dependencies["b.cu"].add_file("/cukiln/src/x.h", hash_of("after"));
  const auto built = build_with(parts, linked_spec({{"a.cu", "1"}, {"b.cu", "2"}}));
  REQUIRE(built);
  CHECK_FALSE(built->observed);
}
