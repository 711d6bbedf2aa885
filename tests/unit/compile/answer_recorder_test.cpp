// SPDX-License-Identifier: Apache-2.0
#include "compile/answer_recorder.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace cukiln;

namespace {

CompileRequest request() {
  CompileRequest request;
  request.sources.emplace_back("/cukiln/src/a.cu", SharedBytes("void a() {}"));
  return request;
}

wire::Answers file(const std::string& path, const std::string& text) {
  return {{{path, wire::FileKind::file, 1, {}, SharedBytes(text)}}};
}

DependencySet set_of(std::initializer_list<std::string> texts) {
  DependencySet set;
  for (const std::string& text : texts) {
    set.add_file("/cukiln/inc/0/" + text, hash_of(text));
  }
  return set;
}

}  // namespace

TEST_CASE("the files of a set are kept once each, up to the limit") {
  AnswerRecorder recorder(request(), 7);
  for (const char* text : {"one", "two", "three"}) {
    CHECK(recorder.record("/a", file("/a", text)) == "");
  }
  CHECK(recorder.record("/b", file("/b", "one")) == "");
  const auto kept = recorder.kept_files(set_of({"one", "two", "one"}));
  REQUIRE(kept);
  REQUIRE(kept->size() == 2);
  CHECK(kept->front().view() == "one");
  CHECK(kept->back().view() == "two");
  CHECK_FALSE(recorder.kept_files(set_of({"one", "three"})));
}

TEST_CASE("without a limit for it no file is kept") {
  AnswerRecorder recorder(request());
  CHECK(recorder.record("/a", file("/a", "")) == "");
  CHECK_FALSE(recorder.kept_files(set_of({""})));
  CHECK(recorder.kept_files(DependencySet())->empty());
}

TEST_CASE("a source is answered from the request, under a number of its own") {
  const AnswerRecorder recorder(request());
  const auto body = recorder.answer_of_source("/cukiln/src/a.cu");
  REQUIRE(body);
  const auto answers = wire::Answers::decode(*body);
  REQUIRE(answers);
  CHECK(answers->answers.front().file == AnswerRecorder::kFirstSource);
  CHECK(answers->answers.front().bytes.view() == "void a() {}");
  CHECK_FALSE(recorder.answer_of_source("/cukiln/src/b.cu"));
}
