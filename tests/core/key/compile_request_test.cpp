// SPDX-License-Identifier: Apache-2.0
#include "core/key/compile_request.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "core/base/hasher.hpp"
#include "core/key/dependency_set.hpp"

using namespace cukiln;

namespace {

CompileRequest example() {
  CompileRequest request;
  request.sources = {{"/cukiln/src/a.cu", SharedBytes("__global__ void k() {}")}};
  request.options.arguments = {"--gpu-architecture=sm_100a", "--std=c++17", "-DA=1", "-UA"};
  request.options.name_expressions = {"k<int>"};
  request.target = {100, 'a'};
  request.toolchain = {"13.0.88", hash_of("libnvrtc")};
  return request;
}

RequestDigest digest(const CompileRequest& request) {
  return CompileRequest::digest_of(request.canonical());
}

}  // namespace

// fault 369
TEST_CASE("every member of a request changes the key") {
  const std::pair<const char*, std::function<void(CompileRequest&)>> changes[] = {
      {"source bytes", [](auto& r) { r.sources[0].text = SharedBytes("__global__ void k() { }"); }},
      {"source name", [](auto& r) { r.sources[0].path = "/cukiln/src/b.cu"; }},
      {"another source", [](auto& r) { r.sources.push_back(r.sources[0]); }},
      {"a flag", [](auto& r) { r.options.arguments[1] = "--std=c++20"; }},
      {"the flags' order",
       [](auto& r) { std::swap(r.options.arguments[2], r.options.arguments[3]); }},
      {"flags joined otherwise",
       [](auto& r) {
         r.options.arguments[2] += r.options.arguments[3];
         r.options.arguments.pop_back();
       }},
      {"a name expression", [](auto& r) { r.options.name_expressions.push_back("k<float>"); }},
      {"capability", [](auto& r) { r.target.capability = 90; }},
      {"suffix f", [](auto& r) { r.target.suffix = 'f'; }},
      {"no suffix", [](auto& r) { r.target.suffix = 0; }},
      {"compiler build", [](auto& r) { r.toolchain.version = "13.0.89"; }},
      {"compiler bytes", [](auto& r) { r.toolchain.content = hash_of("other"); }},
      {"a program", [](auto& r) { r.program.emplace(); }},
      {"a link", [](auto& r) { r.link.emplace(); }},
  };
  const RequestDigest before = digest(example());
  CHECK(before == digest(example()));
  for (const auto& [what, change] : changes) {
    CAPTURE(what);
    CompileRequest request = example();
    change(request);
    CHECK(digest(request) != before);
  }
}

TEST_CASE("every member of a program, and every header given as text, changes the key") {
  CompileRequest example_program = example();
  example_program.program = NvrtcProgram{OutputKind::cubin, "/work"};
  example_program.headers = {{"a.h", SharedBytes("int a;")}};
  CompileRequest example_module = example();
  example_module.headers = example_program.headers;
  const std::pair<const char*, std::function<void(CompileRequest&)>> program_changes[] = {
      {"PTX", [](auto& r) { r.program->output = OutputKind::ptx; }},
      {"LTO-IR", [](auto& r) { r.program->output = OutputKind::lto_ir; }},
      {"OptiX-IR", [](auto& r) { r.program->output = OutputKind::optix_ir; }},
      {"working folder", [](auto& r) { r.program->working_folder = "/home"; }},
      {"no program", [](auto& r) { r.program.reset(); }},
  };
  const std::pair<const char*, std::function<void(CompileRequest&)>> changes[] = {
      {"a header's name", [](auto& r) { r.headers[0].path = "./a.h"; }},
      {"a header's text",
       [](auto& r) {
         r.headers[0] = {"a.h", SharedBytes("int b;")};
       }},
      {"another header",
       [](auto& r) {
         r.headers.push_back({"b.h", SharedBytes("")});
       }},
      {"no header", [](auto& r) { r.headers.clear(); }},
  };
  for (const auto& [what, change] : program_changes) {
    CAPTURE(what);
    CompileRequest request = example_program;
    change(request);
    CHECK(digest(request) != digest(example_program));
  }
  for (const CompileRequest& before : {example_program, example_module}) {
    for (const auto& [what, change] : changes) {
      CAPTURE(what);
      CompileRequest request = before;
      change(request);
      CHECK(digest(request) != digest(before));
    }
  }
}

TEST_CASE("every member of a link changes the key") {
  CompileRequest linked = example();
  linked.link = LinkStep{{"-arch=sm_100a", "-lto"},
                         {{"/cukiln/obj/0/x.o", SharedBytes("image")}},
                         {"13.0", hash_of("nvjitlink")}};
  const std::pair<const char*, std::function<void(CompileRequest&)>> changes[] = {
      {"an option", [](auto& r) { r.link->options[1] = "-g"; }},
      {"another option", [](auto& r) { r.link->options.push_back("-g"); }},
      {"an object's name", [](auto& r) { r.link->objects[0].path = "/cukiln/obj/0/y.o"; }},
      {"an object's bytes",
       [](auto& r) {
         r.link->objects[0] = {"/cukiln/obj/0/x.o", SharedBytes("other")};
       }},
      {"another object", [](auto& r) { r.link->objects.push_back(r.link->objects[0]); }},
      {"linker version", [](auto& r) { r.link->linker.version = "13.1"; }},
      {"linker bytes", [](auto& r) { r.link->linker.content = hash_of("other"); }},
      {"a source", [](auto& r) { r.sources.push_back(r.sources[0]); }},
      {"an argument", [](auto& r) { r.options.arguments.push_back("-lineinfo"); }},
      {"a header given as text",
       [](auto& r) {
         r.headers.push_back({"a.h", SharedBytes("")});
       }},
  };
  for (const auto& [what, change] : changes) {
    CAPTURE(what);
    CompileRequest request = linked;
    change(request);
    CHECK(digest(request) != digest(linked));
  }
}

TEST_CASE("the canonical request of a link can be decoded, and a damaged one is refused") {
  CompileRequest request = example();
  request.headers = {{"a.h", SharedBytes("int a;")}};
  request.options.arguments.emplace_back(kLtoArgument);
  request.link = LinkStep{
      {"-lto"}, {{"/cukiln/obj/0/x.o", SharedBytes("image")}}, {"13.0", hash_of("nvjitlink")}};
  const std::string canonical = request.canonical();
  const auto fields = RequestFields::parse(canonical);
  REQUIRE(fields);
  CHECK_FALSE(fields->program);
  REQUIRE(fields->link);
  CHECK(fields->link->options == std::vector<std::string>{"-lto"});
  REQUIRE(fields->link->objects.size() == 1);
  CHECK(fields->link->objects[0].digest == hash_of("image"));
  CHECK(fields->link->linker.version == "13.0");
  CHECK(fields->link->linker.content == hash_of("nvjitlink"));
  CHECK(fields->headers.at(0).path == "a.h");
  CHECK(fields->output() == OutputKind::cubin);
  CHECK(output_of_request(canonical) == OutputKind::cubin);
  for (std::size_t length = 0; length < canonical.size(); ++length) {
    CHECK_FALSE(RequestFields::parse(canonical.substr(0, length)));
  }
  CHECK_FALSE(RequestFields::parse(canonical + "x"));
}

TEST_CASE("a part of a link with LTO is LTO-IR, and only an argument says so") {
  CompileRequest part = example();
  part.options.arguments.emplace_back(kLtoArgument);
  CHECK(part.output() == OutputKind::lto_ir);
  CHECK(output_of_request(part.canonical()) == OutputKind::lto_ir);
  CHECK(RequestFields::parse(part.canonical())->output() == OutputKind::lto_ir);
  CompileRequest named = example();  // the word is elsewhere in the request
  named.options.arguments.push_back("--define-macro=X=" + std::string(kLtoArgument));
  CHECK(named.output() == OutputKind::cubin);
  CHECK(output_of_request(named.canonical()) == OutputKind::cubin);
}

TEST_CASE("the keys of this format do not change") {
  CompileRequest program = example();
  program.program = NvrtcProgram{OutputKind::ptx, "/work"};
  CompileRequest linked = example();
  linked.headers = {{"a.h", SharedBytes("int a;")}};
  linked.link = LinkStep{
      {"-lto"}, {{"/cukiln/obj/0/x.o", SharedBytes("image")}}, {"13.0", hash_of("nvjitlink")}};
  CHECK(digest(example()).hex() ==
        "2892b35e361650c7b775cca2f43e3a55305c451b6e45e0c438fb02a7c057b137");
  CHECK(digest(program).hex() ==
        "11c1d124c653377510746c7558c356f94d46f0c7efd6748b5e70710ddf20faa7");
  CHECK(digest(linked).hex() == "4c0c2c43b68167e3c594cfaae498cbfe99b2079ede1ec033f91213f3250ac5f6");
}

// fault 124
TEST_CASE("a request of another format, or of no kind that there is, is not decoded") {
  const std::string canonical = example().canonical();
  const std::size_t format = sizeof(std::uint32_t) + std::string("cukiln request").size();
  REQUIRE(canonical[format] == 6);
  for (const char other : {2, 3, 4, 5, 7}) {
    std::string changed = canonical;
    changed[format] = other;
    CHECK_FALSE(RequestFields::parse(changed));
  }
  std::string changed = canonical;
  changed[format + sizeof(std::uint32_t)] = 3;
  CHECK_FALSE(RequestFields::parse(changed));
}

TEST_CASE("the canonical request of a program can be decoded, and a damaged one is refused") {
  CompileRequest request = example();
  request.program = NvrtcProgram{OutputKind::ptx, "/work"};
  request.headers = {{"a.h", SharedBytes("int a;")}};
  const std::string canonical = request.canonical();
  const auto fields = RequestFields::parse(canonical);
  REQUIRE(fields);
  REQUIRE(fields->program);
  CHECK(fields->output() == OutputKind::ptx);
  CHECK(fields->program->working_folder == "/work");
  CHECK(fields->headers.at(0).digest == hash_of("int a;"));
  CHECK(output_of_request(canonical) == OutputKind::ptx);
  CHECK(output_of_request(example().canonical()) == OutputKind::cubin);
  for (std::size_t length = 0; length < canonical.size(); ++length) {
    CHECK_FALSE(RequestFields::parse(canonical.substr(0, length)));
  }
  CHECK_FALSE(RequestFields::parse(canonical + "x"));
  std::string unknown_kind = canonical;
  unknown_kind[canonical.size() - std::string("/work").size() - 5] =
      static_cast<char>(OutputKind::failure) + 1;
  CHECK_FALSE(RequestFields::parse(unknown_kind));
}

TEST_CASE("the canonical request of a module with headers as texts can be decoded") {
  CompileRequest request = example();
  request.headers = {{"a.h", SharedBytes("int a;")}, {"b.h", SharedBytes("")}};
  const std::string canonical = request.canonical();
  const auto fields = RequestFields::parse(canonical);
  REQUIRE(fields);
  CHECK_FALSE(fields->program);
  REQUIRE(fields->headers.size() == 2);
  CHECK(fields->headers[0].path == "a.h");
  CHECK(fields->headers[0].digest == hash_of("int a;"));
  CHECK(fields->headers[1].size == 0);
  CHECK(output_of_request(canonical) == OutputKind::cubin);
  for (std::size_t length = 0; length < canonical.size(); ++length) {
    CHECK_FALSE(RequestFields::parse(canonical.substr(0, length)));
  }
}

TEST_CASE("a canonical request can be decoded, and a damaged one is refused") {
  const std::string canonical = example().canonical();
  const auto fields = RequestFields::parse(canonical);
  REQUIRE(fields);
  CHECK(fields->sources.at(0).path == "/cukiln/src/a.cu");
  CHECK(fields->sources.at(0).digest == hash_of("__global__ void k() {}"));
  CHECK(fields->options.arguments == example().options.arguments);
  CHECK(fields->target == Target{100, 'a'});
  CHECK(fields->toolchain.version == "13.0.88");
  for (std::size_t length = 0; length < canonical.size(); ++length) {
    CHECK_FALSE(RequestFields::parse(canonical.substr(0, length)));
  }
  CHECK_FALSE(RequestFields::parse(canonical + "x"));
}

TEST_CASE("several sources form one translation unit that includes them in order") {
  CompileRequest request = example();
  CHECK(request.translation_unit().path == "/cukiln/src/a.cu");
  request.sources.push_back({"/cukiln/src/b.cu", SharedBytes("int b;")});
  const VirtualSource unit = request.translation_unit();
  CHECK(unit.text.view() == "#include \"/cukiln/src/a.cu\"\n#include \"/cukiln/src/b.cu\"\n");
}

TEST_CASE("a dependency set round-trips in order, and every part of it changes the key") {
  DependencySet set;
  set.add_absent("/cukiln/src/b.cuh");
  set.add_file("/cukiln/inc/0/b.cuh", hash_of("b"));
  set.add_folder("/cukiln/inc/0");
  set.add_file("/cukiln/inc/0/a.cuh", hash_of("a"));
  CHECK(set.observations[3].identity == 2);
  CHECK(set.files() == 2);
  CHECK(set.find("/cukiln/inc/0/a.cuh")->hash == hash_of("a"));
  CHECK(set.find("/cukiln/inc/0/c.cuh") == nullptr);
  const auto again = DependencySet::parse(set.canonical());
  REQUIRE(again);
  CHECK(*again == set);
  CHECK(set.portable());

  const CacheKey key = cache_key_of("request", set.canonical());
  CHECK(key != cache_key_of("request2", set.canonical()));
  DependencySet other = set;
  other.observations.pop_back();
  CHECK(cache_key_of("request", other.canonical()) != key);
  other = set;
  other.observations[1].hash = hash_of("edited");
  CHECK(cache_key_of("request", other.canonical()) != key);
  other = set;
  std::swap(other.observations[0], other.observations[1]);
  CHECK(cache_key_of("request", other.canonical()) != key);
  other = set;
  other.observations[3].identity = other.observations[1].identity;  // one file instead of two
  CHECK(cache_key_of("request", other.canonical()) != key);
  other = set;
  other.observations[0].kind = Observation::Kind::folder;
  CHECK(cache_key_of("request", other.canonical()) != key);
  other = set;
  other.add_file("/opt/site/x.cuh", hash_of("x"));
  CHECK_FALSE(other.portable());
  const std::string canonical = set.canonical();
  for (std::size_t length = 0; length < canonical.size(); ++length) {
    CHECK_FALSE(DependencySet::parse(canonical.substr(0, length)));
  }
  other = set;
  other.observations[3].identity = 7;  // classes are numbered without gaps: expected 2
  CHECK_FALSE(DependencySet::parse(other.canonical()));
}
