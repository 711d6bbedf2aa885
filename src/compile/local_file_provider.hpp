// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compile/file_provider.hpp"
#include "compile/dependency_recorder.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/file_server.hpp"
#include "wire/messages.hpp"

namespace cukiln {

/// Answers a worker's questions about files during one compile, and keeps account of them: what
/// NVRTC looked at is what the result depends on.
class LocalFileProvider final : public FileProvider {
 public:
  LocalFileProvider(const CompileRequest& request, const VirtualSource& unit, FileServer& files);

  /// The answer, and answers to questions that are likely to follow.
  wire::Answers answer(const std::string& path);

  Result<std::string> reply(const std::string& path) override { return answer(path).encode(); }
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override {
    return looked_at_.take(compiled.looked_at);
  }
  const std::string& refused() const noexcept override { return looked_at_.refused(); }

 private:
  wire::Answer answer_one(const std::string& path);
  void offer_more(wire::Answers& to);
  void offer_includes(const std::string& path, ByteView text, wire::Answers& to);
  bool offer(const std::string& path, wire::Answers& to);
  std::uint32_t number_of(const FileIdentity& identity);
  std::string topmost_absent_folder(const std::string& path);

  FileServer& files_;
  DependencyRecorder looked_at_;
  std::vector<std::string> include_folders_;  // virtual, in the order they are searched
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> numbers_;  // device and inode
  std::unordered_set<std::string> told_;
  struct Unread {
    std::string path;
    SharedBytes text;
  };
  std::deque<Unread> unread_;  // served, and not looked through for includes yet
};

}  // namespace cukiln
