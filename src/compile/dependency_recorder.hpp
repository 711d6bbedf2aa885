// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hasher.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/set_tree.hpp"
#include "wire/messages.hpp"

namespace cukiln {

/// What one compile was told is where, and of that what NVRTC looked at: what the result depends
/// on, without the sources, which the request has.
class DependencyRecorder {
 public:
  DependencyRecorder(const CompileRequest& request, const VirtualSource& unit);

  /// A source's own bytes. Null: `path` is none.
  const SharedBytes* source(const std::string& path) const;

  /// Notes an answer that NVRTC may look at. The first for a path counts, and none below a folder
  /// that is absent, as in the worker. `digest`: of the answer's bytes.
  void told(const wire::Answer& answer, const ContentHash& digest, const std::string& refusal);

  /// From the paths that NVRTC looked at, in order. Errors: internal, a path that nothing was said
  /// about.
  Result<DependencySet> take(const std::vector<std::string>& paths);
  /// What a SetTree knows of an answer; nothing: none came for the path.
  std::optional<SetTree::Label> label(const std::string& path) const;
  void refuse(const std::string& sentence) { refused_ = refused_.empty() ? sentence : refused_; }
  /// The first that was looked at and could not be read, as a sentence; empty: none.
  const std::string& refused() const noexcept { return refused_; }

 private:
  struct Fact {
    wire::FileKind kind = wire::FileKind::absent;
    ContentHash digest;
    std::uint32_t file = 0;  ///< as the answer numbers it
    std::string refusal;
  };
  bool below_absent_folder(const std::string& path) const;

  std::unordered_map<std::string, SharedBytes> sources_;
  std::unordered_map<std::string, Fact> facts_;
  std::vector<std::string> absent_folders_;  // each with a slash at its end
  std::string refused_;
};

}  // namespace cukiln
