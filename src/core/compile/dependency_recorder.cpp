// SPDX-License-Identifier: Apache-2.0
#include "core/compile/dependency_recorder.hpp"

#include <algorithm>
#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

DependencyRecorder::DependencyRecorder(const CompileRequest& request, const VirtualSource& unit) {
  if (request.program) {
    return;  // its text has a name and is at no path
  }
  for (const VirtualSource& source : request.sources) {
    sources_[source.path] = source.text;
  }
  sources_[unit.path] = unit.text;
}

const SharedBytes* DependencyRecorder::source(const std::string& path) const {
  const auto at = sources_.find(path);
  return at != sources_.end() ? &at->second : nullptr;
}

void DependencyRecorder::record_sent(const wire::Answer& answer, const ContentHash& digest,
                                     const std::string& refusal) {
  if (below_absent_folder(answer.path)) {
    return;
  }
  if (!answer.absent_folder.empty()) {
    absent_folders_.push_back(answer.absent_folder + "/");
  }
  const auto [at, is_new] = sent_.try_emplace(answer.path);
  if (is_new) {
    at->second = {answer.kind, digest, answer.file, refusal};
  }
}

bool DependencyRecorder::below_absent_folder(const std::string& path) const {
  return std::any_of(absent_folders_.begin(), absent_folders_.end(),
                     [&](const std::string& folder) { return path.starts_with(folder); });
}

std::optional<SetTree::Label> DependencyRecorder::label(const std::string& path) const {
  const auto at = sent_.find(path);
  if (at == sent_.end()) {
    return std::nullopt;
  }
  switch (at->second.kind) {
    case wire::FileKind::file: return SetTree::label_of(Observation::Kind::file, at->second.digest);
    case wire::FileKind::folder: return SetTree::label_of(Observation::Kind::folder, {});
    case wire::FileKind::absent: return SetTree::label_of(Observation::Kind::absent, {});
    case wire::FileKind::error: break;
  }
  return std::nullopt;
}

Result<DependencySet> DependencyRecorder::take(const std::vector<std::string>& accessed) {
  DependencySet set;
  set.observations.reserve(accessed.size());
  std::unordered_map<std::uint32_t, std::uint32_t> classes;  // by file, in order of first use
  const auto identity_class = [&](std::uint32_t file) {
    return classes.try_emplace(file, static_cast<std::uint32_t>(classes.size())).first->second;
  };
  for (const std::string& path : accessed) {
    if (source(path) != nullptr) {
      continue;
    }
    const auto at = sent_.find(path);
    if (at == sent_.end()) {
      if (!below_absent_folder(path)) {
        return make_error(
            ErrorCode::internal,
            "the compile worker reports an access to {}, for which no answer was sent", path);
      }
      set.add_absent(path);
      continue;
    }
    const SentAnswer& answer = at->second;
    switch (answer.kind) {
      case wire::FileKind::file:
        set.add_file(path, answer.digest, identity_class(answer.file));
        break;
      case wire::FileKind::folder: set.add_folder(path, identity_class(answer.file)); break;
      case wire::FileKind::absent: set.add_absent(path); break;
      case wire::FileKind::error:
        refuse(answer.refusal);
        set.add_absent(path);
        break;
    }
  }
  return set;
}

}  // namespace cukiln
