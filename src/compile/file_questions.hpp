#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/file_server.hpp"
#include "wire/messages.hpp"

namespace cukiln {

/// Answers a worker's questions about files during one compile, and keeps account of them: what was
/// asked is what the result depends on.
class FileQuestions {
 public:
  FileQuestions(const CompileRequest& request, const VirtualSource& unit, FileServer& files);

  struct Reply {
    wire::Answer answer;  ///< without the bytes
    SharedBytes bytes;
  };
  Reply answer(const std::string& path);
  /// Looks through what was just answered, while the worker is busy with it.
  void look_for_time(ByteView text);

  /// Everything that was asked, without the sources, which the request has.
  DependencySet take_dependencies(std::vector<std::string> inferred_absent);

  bool uses_time() const noexcept { return uses_time_; }
  /// What could not be read, as a sentence; empty: nothing.
  const std::string& refused() const noexcept { return refused_; }

 private:
  void identify(const FileAnswer& from, const std::string& path, wire::Answer& to);
  std::string topmost_absent_folder(const std::string& path);

  FileServer& files_;
  std::unordered_map<std::string, SharedBytes> sources_;
  std::unordered_map<std::string, std::uint64_t> memory_inodes_;
  DependencySet dependencies_;
  std::string refused_;
  bool uses_time_ = false;
};

}  // namespace cukiln
