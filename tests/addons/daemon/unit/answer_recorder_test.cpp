// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/answer_recorder.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace cukiln;

namespace {

CompileRequest request() {
  CompileRequest request;
  request.sources.emplace_back("/cukiln/src/a.cu", SharedBytes("void a() {}"));
  return request;
}

}  // namespace

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
