// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.hpp"
#include "base/hasher.hpp"
#include "compile/answer_recorder.hpp"
#include "compile/file_provider.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"

namespace cukiln::daemon {

/// Serves a compile with what the dependency set of an earlier one says was there: the files by
/// their digests, from the texts of an offer, and nothing else. Records the set of this compile,
/// which differs from the earlier one if a text is missing or another path is accessed. All
/// arguments outlive it. Threads: one.
class OfferedFiles final : public FileProvider {
 public:
  OfferedFiles(const CompileRequest& request, const DependencySet& set,
               const std::vector<SharedBytes>& texts);

  /// Errors: invalid_argument (a path that the set does not name, a text that is missing).
  Result<std::string> reply(const std::string& path) override;
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override {
    return recorder_.take_dependencies(compiled);
  }
  const std::string& refused() const noexcept override { return recorder_.refused(); }

 private:
  const DependencySet& set_;
  AnswerRecorder recorder_;
  std::unordered_map<ContentHash, SharedBytes> texts_;
};

}  // namespace cukiln::daemon
