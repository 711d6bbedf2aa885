#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compile/looked_at.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "wire/messages.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// What a compile depends on, from answers that somebody else gave: the digests are of the bytes
/// that came, whatever the one who sent them says of them.
class AnswerAccount {
 public:
  explicit AnswerAccount(const CompileRequest& request);

  /// Takes note of an answer to `path`, and of what came with it. Empty; or why it cannot be
  /// passed on: another path was answered, or a source, which the request has.
  std::string learn(const std::string& path, const wire::Answers& answers);

  DependencySet take_dependencies(const wire::Compiled& compiled);
  bool uses_time() const noexcept { return looked_at_.uses_time(); }
  /// What could not be read; empty: nothing.
  const std::string& refused() const noexcept { return looked_at_.refused(); }

  /// A source's own bytes: no question to anybody. Null: it is none.
  const SharedBytes* source(const std::string& path) const { return looked_at_.source(path); }

 private:
  struct Told {
    wire::FileKind kind = wire::FileKind::absent;
    Digest128 digest;
    bool has_time = false;
  };
  void note(const std::string& path);

  LookedAt looked_at_;
  std::unordered_map<std::string, Told> told_;
};

}  // namespace cukiln
