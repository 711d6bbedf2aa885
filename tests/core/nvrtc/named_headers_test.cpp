// SPDX-License-Identifier: Apache-2.0
// Headers that are given as texts, under the name by which they are included: the rules are those
// of NVRTC's own interface, with which each case is compared.
#include <string>
#include <utility>
#include <vector>

#include "core/compile/nvrtc_api.hpp"
#include "support/loader_fixture.hpp"
#include "support/nvrtc_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Case {
  const char* what;
  std::string text;  ///< behind it, H is 99 if it is not defined
  Headers headers;
  std::vector<std::string> flags = {};
};

constexpr const char* kSeven = "#define H 7\n";
constexpr const char* kCounts =
    "#pragma once\n#ifdef Q\n#undef Q\n#define Q 2\n#else\n#define Q 1\n#endif\n";

std::string whole(const std::string& text) {
  return text + "\n#ifndef H\n#define H 99\n#endif\ntemplate <int N> __global__ void q() {}\n";
}

/// The lowered name of q<H>, in which H is; or `none`.
std::string plain_nvrtc(const Case& one, const std::string& source, const std::string& include) {
  static NvrtcApi& api = *[] {
    static NvrtcApi opened;
    const NvrtcInstall install = RealNvrtc::compiler().identity()->install;
    REQUIRE(opened.open(install.library, install.builtins) == "");
    return &opened;
  }();
  wire::Compile job;
  job.unit_path = source;
  job.unit_text = whole(one.text);
  job.arguments = {"--gpu-architecture=sm_90a", "--std=c++17", "--include-path=" + include};
  job.arguments.insert(job.arguments.end(), one.flags.begin(), one.flags.end());
  job.name_expressions = {"q<H>"};
  std::vector<NamedHeader> headers;
  for (const auto& [name, text] : one.headers) {
    headers.push_back({name, text});
  }
  const wire::Compiled compiled = compile_with(api, job, OutputKind::cubin, headers);
  return compiled.status == wire::CompileStatus::ok ? compiled.lowered.front() : "none";
}

ModuleSpec spec_of(const Case& one, const std::string& source, const std::string& include) {
  ModuleSpec spec;
  spec.sources = {SourceFile{source}};
  spec.include = {include};
  spec.flags = one.flags;
  spec.names = {"q<H>"};
  spec.targets = {{90, 'a'}};
  spec.std_shims = false;
  for (const auto& [name, text] : one.headers) {
    spec.named_headers.push_back(SourceText{name, text});
  }
  return spec;
}

}  // namespace

TEST_CASE_FIXTURE(LoaderFixture, "named headers are found as by NVRTC's own interface") {
  scratch.write("inc/h.h", "#define H 1\n");
  scratch.write("inc/foo/x.h", "#include \"sib.h\"\n");
  scratch.write("inc/foo/sib.h", "#define H 2\n");
  scratch.write("src/h.h", "#define H 3\n");
  const std::string include = scratch / "inc";
  const std::vector<Case> cases = {
      {"in brackets", "#include <m.h>", {{"m.h", kSeven}}},
      {"in quotes", "#include \"m.h\"", {{"m.h", kSeven}}},
      {"before an include folder", "#include <h.h>", {{"h.h", kSeven}}},
      {"before the source's folder", "#include \"h.h\"", {{"h.h", kSeven}}},
      {"no header: the source's folder", "#include \"h.h\"", {{"other.h", kSeven}}},
      {"no header: the include folder", "#include <h.h>", {{"other.h", kSeven}}},
      {"before the folder of a header on disk", "#include <foo/x.h>", {{"sib.h", kSeven}}},
      {"but not under its folder's name", "#include <foo/x.h>", {{"foo/sib.h", kSeven}}},
      {"no folder of its own",
       "#include <a/b.h>",
       {{"a/b.h", "#include \"c.h\"\n"}, {"a/c.h", kSeven}}},
      {"included by a named one",
       "#include <a/b.h>",
       {{"a/b.h", "#include \"c.h\"\n"}, {"c.h", kSeven}}},
      {"includes from a folder", "#include <a/b.h>", {{"a/b.h", "#include \"h.h\"\n"}}},
      {"no sibling on disk", "#include <foo/b.h>", {{"foo/b.h", "#include \"sib.h\"\n"}}},
      {"spelt otherwise", "#include \"./m.h\"", {{"m.h", kSeven}}},
      {"an absolute name", "#include \"/abs/m.h\"", {{"/abs/m.h", kSeven}}},
      {"an absolute name in brackets", "#include </abs/m.h>", {{"/abs/m.h", kSeven}}},
      {"a name with ..", "#include \"../m.h\"", {{"../m.h", kSeven}}},
      {"pre-included", "", {{"m.h", kSeven}}, {"--pre-include=m.h"}},
      {"pre-included before an include folder", "", {{"h.h", kSeven}}, {"--pre-include=h.h"}},
      {"__has_include",
       "#if __has_include(<m.h>) && __has_include(\"m.h\")\n#define H 5\n#endif",
       {{"m.h", kSeven}}},
      {"by a macro", "#define M <m.h>\n#include M", {{"m.h", kSeven}}},
      {"#include_next", "#include <h.h>", {{"h.h", "#include_next <h.h>\n"}}},
      {"one file in quotes and brackets",
       "#include <m.h>\n#include \"m.h\"\n#define H Q",
       {{"m.h", kCounts}}},
      {"two files of one text",
       "#include <m.h>\n#include <n.h>\n#define H Q",
       {{"m.h", kCounts}, {"n.h", kCounts}}},
      {"a header of the toolkit", "#include <cuda_fp16.h>", {{"cuda_fp16.h", kSeven}}},
      {"its name",
       "#include <m.h>",
       {{"m.h", "constexpr int kLength = sizeof(__FILE__);\n#define H kLength\n"}}},
      {"empty", "#include <m.h>", {{"m.h", ""}}},
  };
  const auto loader = open();
  std::size_t found = 0;
  for (const Case& one : cases) {
    CAPTURE(one.what);
    const std::string source = scratch.write("src/k.cu", whole(one.text));
    const std::string expected = plain_nvrtc(one, source, include);
    const auto reports = loader->compile(spec_of(one, source, include));
    REQUIRE(reports);
    const ModuleReport& report = reports->front();
    CHECK((!report.error ? report.kernels.at(0).lowered : "none") == expected);
    found += expected == "_Z1qILi7EEvv" ? 1 : 0;
  }
  CHECK(found == 13);
}

TEST_CASE_FIXTURE(LoaderFixture, "named headers are in the key: names and texts, and no order") {
  const std::string source = scratch.write("k.cu", whole("#include <a.h>\n#include <b.h>"));
  const auto loader = open();
  const auto compiled = [&](const Headers& headers) {
    return only(loader->compile(spec_of({"", "", headers}, source, scratch.path())));
  };
  const ModuleReport first = compiled({{"a.h", kSeven}, {"b.h", ""}});
  CHECK(first.outcome == Outcome::compiled);
  CHECK(!first.not_stored);
  const ModuleReport swapped = compiled({{"b.h", ""}, {"a.h", kSeven}});
  CHECK(swapped.outcome == Outcome::hit);
  CHECK(swapped.key == first.key);
  const ModuleReport edited = compiled({{"a.h", "#define H 8\n"}, {"b.h", ""}});
  CHECK(edited.outcome == Outcome::compiled);
  CHECK(edited.key != first.key);
  CHECK(compiled({{"a.h", kSeven}, {"b.h", ""}, {"unused.h", ""}}).outcome == Outcome::compiled);
  // A header on disk that a named one hides is no dependency.
  scratch.write("a.h", "#define H 9\n");
  CHECK(compiled({{"a.h", kSeven}, {"b.h", ""}}).outcome == Outcome::hit);
}

TEST_CASE_FIXTURE(LoaderFixture, "a named header comes before one beside the sources") {
  const std::string text = whole("#include \"m.h\"");
  ModuleSpec spec = spec_of({"", "", {{"m.h", kSeven}}}, "k.cu", scratch.path());
  spec.sources = {SourceText{"k.cu", text}};
  spec.headers = {SourceText{"m.h", "#define H 3\n"}};
  CHECK(only(open()->compile(spec)).kernels.at(0).lowered == "_Z1qILi7EEvv");
  spec.named_headers.clear();
  CHECK(only(open()->compile(spec)).kernels.at(0).lowered == "_Z1qILi3EEvv");
}

TEST_CASE_FIXTURE(LoaderFixture, "a date macro in a named header is noticed") {
  const std::string source = scratch.write("k.cu", whole("#include <a.h>"));
  const Case dated = {"", "", {{"a.h", "#define WHEN __TIME__\n"}}};
  CHECK(only(open()->compile(spec_of(dated, source, scratch.path()))).not_stored);
}

TEST_CASE_FIXTURE(LoaderFixture, "wrong named headers are refused before a compile") {
  const std::string source = scratch.write("k.cu", whole(""));
  const auto refused = [&](std::vector<Source> headers) {
    ModuleSpec spec = spec_of({"", "", {}}, source, scratch.path());
    spec.named_headers = std::move(headers);
    const auto reports = open()->compile(spec);
    REQUIRE(reports);
    REQUIRE(reports->front().error);
    CHECK(reports->front().error->code() == ErrorCode::invalid_argument);
    return std::string(reports->front().error->message());
  };
  const auto contains = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  contains(refused({SourceText{"a.h", ""}, SourceText{"a.h", ""}}),
           "has two named headers \"a.h\"; expected one of each name");
  contains(refused({SourceText{"", ""}}), "has no name");
  contains(refused({SourceFile{source}}), "has no text");
  contains(refused({SourceText{"a.h", std::string("a\0b", 3)}}), "a NUL byte at offset 1");
  contains(refused({SourceText{std::string("a\0b", 3), ""}}), "has a NUL byte at offset 1");
}

TEST_CASE_FIXTURE(LoaderFixture, "a manifest has named headers") {
  scratch.write("k.cu", whole("#include <jit/a.h>"));
  const auto manifest = Manifest::parse(
      R"({"format":1,"modules":[{"name":"k","sources":["k.cu"],"names":["q<H>"],"targets":["sm_90a"],)"
      R"("named_headers":{"jit/a.h":"#define H 7\n"}}]})",
      scratch.path());
  REQUIRE(manifest);
  const auto report = open()->preload(*manifest, without_load());
  REQUIRE_MESSAGE(report, report.error().message());
  CHECK(report->modules[0].kernels.at(0).lowered == "_Z1qILi7EEvv");
  for (const char* wrong : {R"("a.h")", R"({"a.h":1})", R"({"":"x"})", R"(["a.h"])"}) {
    CAPTURE(wrong);
    const auto parsed = Manifest::parse(
        R"({"format":1,"modules":[{"name":"k","sources":["k.cu"],"named_headers":)" +
            std::string(wrong) + "}]}",
        scratch.path());
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message().find("named_headers") != std::string::npos);
  }
}
