// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/answer_recorder.hpp"

#include <algorithm>

namespace cukiln {

AnswerRecorder::AnswerRecorder(const CompileRequest& request)
    : recorder_(request, request.translation_unit()) {
  for (const VirtualSource& source : request.sources) {
    source_paths_.push_back(source.path);
  }
}

std::string AnswerRecorder::record(const std::string& path, const wire::Answers& answers) {
  if (answers.answers.empty() || answers.answers.front().path != path) {
    return "the answer is not about " + path;
  }
  for (const wire::Answer& answer : answers.answers) {
    if (recorder_.source(answer.path) != nullptr || answer.file >= kFirstSource) {
      return "the answer is about a source, " + answer.path;
    }
    const ContentHash digest =
        answer.kind == wire::FileKind::file ? hash_of(answer.bytes) : ContentHash{};
    recorder_.record_sent(answer, digest, answer.path + " cannot be read");
  }
  return {};
}

/// The file number of a source, or of the translation unit, which follows the sources.
std::uint32_t AnswerRecorder::source_number(const std::string& path) const {
  const auto at = std::find(source_paths_.begin(), source_paths_.end(), path);
  return kFirstSource + static_cast<std::uint32_t>(at - source_paths_.begin());
}

std::optional<std::string> AnswerRecorder::answer_of_source(const std::string& path) const {
  const SharedBytes* const text = recorder_.source(path);
  if (text == nullptr) {
    return std::nullopt;
  }
  wire::Answers own;
  own.answers.push_back({path, wire::FileKind::file, source_number(path), {}, *text});
  return own.encode();
}

}  // namespace cukiln
