// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compile/dependency_recorder.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/set_tree.hpp"
#include "wire/messages.hpp"

namespace cukiln {

/// What a compile depends on, from answers that a client gave: the digests are of the bytes that
/// came, whatever the client says of them.
class AnswerRecorder {
 public:
  /// The numbers of sources begin here, and a client's own are below: a source is no other file.
  static constexpr std::uint32_t kFirstSource = 1u << 31;

  explicit AnswerRecorder(const CompileRequest& request);

  /// Takes note of an answer to `path`, and of what came with it. Empty; or why it cannot be
  /// passed on: another path was answered, or a source, which the request has.
  std::string record(const std::string& path, const wire::Answers& answers);

  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) {
    return looked_at_.take(compiled.looked_at);
  }
  /// What could not be read; empty: nothing.
  const std::string& refused() const noexcept { return looked_at_.refused(); }

  /// A source's own bytes: no question to anybody. Null: it is none.
  const SharedBytes* source(const std::string& path) const { return looked_at_.source(path); }
  /// The label of what a client said is at a path; nothing: it was not asked.
  std::optional<SetTree::Label> label(const std::string& path) const {
    return looked_at_.label(path);
  }

 private:
  DependencyRecorder looked_at_;
};

}  // namespace cukiln
