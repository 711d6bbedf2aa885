// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/hasher.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/set_tree.hpp"
#include "core/wire/messages.hpp"

namespace cukiln {

/// Builds the dependency set of one compile. It records every answer sent to the worker, and makes
/// the set of those that NVRTC accessed, without the sources, which are part of the request.
class DependencyRecorder {
 public:
  DependencyRecorder(const CompileRequest& request, const VirtualSource& unit);

  /// Returns the text of a source; null if `path` is not a source.
  const SharedBytes* source(const std::string& path) const;

  /// Records an answer sent to the worker. As in the worker, only the first answer for a path
  /// counts, and none below an absent folder. `digest` is that of the answer's bytes; `refusal`
  /// says why the file cannot be read, if it cannot.
  void record_sent(const wire::Answer& answer, const ContentHash& digest,
                   const std::string& refusal);

  /// Returns the dependency set of the paths that NVRTC accessed, in order. Errors: internal if no
  /// answer was sent for one of them.
  Result<DependencySet> take(const std::vector<std::string>& accessed);
  /// Returns the label of the answer for a path; nothing if none was sent.
  std::optional<SetTree::Label> label(const std::string& path) const;
  /// Sets `refused` unless it is set.
  void refuse(const std::string& sentence) { refused_ = refused_.empty() ? sentence : refused_; }
  /// Returns a sentence about the first accessed file that could not be read; empty if there is
  /// none.
  const std::string& refused() const noexcept { return refused_; }

 private:
  struct SentAnswer {
    wire::FileKind kind = wire::FileKind::absent;
    ContentHash digest;
    std::uint32_t file = 0;  ///< the answer's file number
    std::string refusal;
  };
  bool below_absent_folder(const std::string& path) const;

  std::unordered_map<std::string, SharedBytes> sources_;
  std::unordered_map<std::string, SentAnswer> sent_;
  std::vector<std::string> absent_folders_;  // each with a slash at its end
  std::string refused_;
};

}  // namespace cukiln
