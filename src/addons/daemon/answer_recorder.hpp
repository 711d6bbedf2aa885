// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/hasher.hpp"
#include "core/compile/dependency_recorder.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/set_tree.hpp"
#include "core/wire/messages.hpp"

namespace cukiln {

/// Records the dependency set of a compile whose files a client of the daemon serves. Digests are
/// computed from the bytes received; nothing that the client claims about them is used.
class AnswerRecorder {
 public:
  /// File numbers of sources begin here; a client's are below, so that the two never coincide.
  static constexpr std::uint32_t kFirstSource = 1u << 31;

  explicit AnswerRecorder(const CompileRequest& request);

  /// Records the client's answer for `path`, and the answers sent ahead with it. Returns an empty
  /// string, or why they must not be passed to the worker: they are about another path, or about a
  /// source, whose text is in the request.
  std::string record(const std::string& path, const wire::Answers& answers);

  /// Returns the dependency set of the compile. Errors: as DependencyRecorder::take.
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) {
    return recorder_.take(compiled.looked_at);
  }
  /// Returns a sentence about the first accessed file that could not be read; empty if there is
  /// none.
  const std::string& refused() const noexcept { return recorder_.refused(); }

  /// Returns the encoded wire::Answers for a source, which the client need not send; nothing if
  /// `path` is not a source.
  std::optional<std::string> answer_of_source(const std::string& path) const;
  /// Returns the label of the client's answer for a path; nothing if it has sent none.
  std::optional<SetTree::Label> label(const std::string& path) const {
    return recorder_.label(path);
  }

 private:
  std::uint32_t source_number(const std::string& path) const;

  DependencyRecorder recorder_;
  std::vector<std::string> source_paths_;  // the translation unit's is the last
};

}  // namespace cukiln
