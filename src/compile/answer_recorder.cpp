// SPDX-License-Identifier: Apache-2.0
#include "compile/answer_recorder.hpp"

#include <algorithm>
#include <unordered_set>

namespace cukiln {

AnswerRecorder::AnswerRecorder(const CompileRequest& request, std::uint64_t max_kept_bytes)
    : recorder_(request, request.translation_unit()), max_kept_bytes_(max_kept_bytes) {
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
    const bool is_file = answer.kind == wire::FileKind::file;
    const ContentHash digest = is_file ? hash_of(answer.bytes) : ContentHash{};
    recorder_.record_sent(answer, digest, answer.path + " cannot be read");
    if (is_file) {
      keep(digest, answer.bytes);
    }
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

void AnswerRecorder::keep(const ContentHash& digest, const SharedBytes& content) {
  if (max_kept_bytes_ != 0 && content.size() <= max_kept_bytes_ - kept_bytes_ &&
      kept_.try_emplace(digest, content).second) {
    kept_bytes_ += content.size();
  }
}

std::optional<std::vector<SharedBytes>> AnswerRecorder::kept_files(const DependencySet& set) const {
  std::vector<SharedBytes> files;
  std::unordered_set<ContentHash> taken;
  for (const Observation& seen : set.observations) {
    if (seen.kind != Observation::Kind::file || !taken.insert(seen.hash).second) {
      continue;
    }
    const auto at = kept_.find(seen.hash);
    if (at == kept_.end()) {
      return std::nullopt;
    }
    files.push_back(at->second);
  }
  return files;
}

}  // namespace cukiln
