#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/file_server.hpp"
#include "wire/messages.hpp"

namespace cukiln {

/// Answers a worker's questions about files during one compile, and keeps account of them: what
/// NVRTC looked at is what the result depends on.
class FileQuestions {
 public:
  FileQuestions(const CompileRequest& request, const VirtualSource& unit, FileServer& files);

  /// The answer, and answers to questions that are likely to follow.
  wire::Answers answer(const std::string& path);

  /// Everything that was looked at, without the sources, which the request has.
  DependencySet take_dependencies(const wire::Compiled& compiled);

  /// Whether something that was looked at has a macro of the compile's date. Known with the
  /// dependencies.
  bool uses_time() const noexcept { return uses_time_; }
  /// What could not be read, as a sentence; empty: nothing.
  const std::string& refused() const noexcept { return refused_; }

 private:
  wire::Answer answer_one(const std::string& path);
  void offer_more(wire::Answers& to);
  void offer_includes(const std::string& path, ByteView text, wire::Answers& to);
  bool offer(const std::string& path, wire::Answers& to);
  void note(const std::string& path);
  void identify(const FileAnswer& from, const std::string& path, wire::Answer& to);
  std::string topmost_absent_folder(const std::string& path);

  FileServer& files_;
  std::unordered_map<std::string, SharedBytes> sources_;
  std::vector<std::string> include_folders_;  // virtual, in the order they are searched
  std::unordered_map<std::string, std::uint64_t> memory_inodes_;
  std::unordered_set<std::string> told_;
  struct Unread {
    std::string path;
    SharedBytes text;
  };
  std::deque<Unread> unread_;  // served, and not looked through for includes yet
  DependencySet dependencies_;
  std::string refused_;
  bool uses_time_ = false;
};

}  // namespace cukiln
