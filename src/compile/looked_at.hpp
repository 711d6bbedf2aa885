#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// What NVRTC looked at during one compile: what the result depends on, without the sources, which
/// the request has.
class LookedAt {
 public:
  LookedAt(const CompileRequest& request, const VirtualSource& unit);

  /// A source's own bytes. Null: `path` is none.
  const SharedBytes* source(const std::string& path) const;

  void add_file(const std::string& path, const Digest128& digest, bool has_time);
  void add_folder(const std::string& path) { dependencies_.folders.push_back(path); }
  void add_absent(const std::string& path) { dependencies_.absent.push_back(path); }
  void add_unreadable(const std::string& sentence);

  /// In order, with the paths that must be absent because a folder of theirs is.
  DependencySet take(const std::vector<std::string>& inferred_absent);
  bool uses_time() const noexcept { return uses_time_; }
  /// The first that could not be read, as a sentence; empty: none.
  const std::string& refused() const noexcept { return refused_; }

 private:
  std::unordered_map<std::string, SharedBytes> sources_;
  DependencySet dependencies_;
  std::string refused_;
  bool uses_time_ = false;
};

/// __TIME__, __DATE__ or __TIMESTAMP__, also in comments and strings: a wrong yes costs one compile
/// each time, a wrong no an old date.
bool has_time_macro(ByteView text) noexcept;

}  // namespace cukiln
