// SPDX-License-Identifier: Apache-2.0
#include "compile/answer_recorder.hpp"

#include "base/hasher.hpp"

namespace cukiln {

AnswerRecorder::AnswerRecorder(const CompileRequest& request)
    : recorder_(request, request.translation_unit()) {}

std::string AnswerRecorder::record(const std::string& path, const wire::Answers& answers) {
  if (answers.answers.empty() || answers.answers.front().path != path) {
    return "the answer is not about " + path;
  }
  for (const wire::Answer& answer : answers.answers) {
    if (source(answer.path) != nullptr || answer.file >= kFirstSource) {
      return "the answer is about a source, " + answer.path;
    }
    const bool is_file = answer.kind == wire::FileKind::file;
    recorder_.record_sent(answer, is_file ? hash_of(answer.bytes) : ContentHash{},
                          answer.path + " cannot be read");
  }
  return {};
}

}  // namespace cukiln
