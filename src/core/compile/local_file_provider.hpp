// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/compile/dependency_recorder.hpp"
#include "core/compile/file_provider.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/file_server.hpp"
#include "core/wire/messages.hpp"

namespace cukiln {

/// Serves the files of this host to a worker during one compile.
class LocalFileProvider final : public FileProvider {
 public:
  LocalFileProvider(const CompileRequest& request, const VirtualSource& unit, FileServer& files);

  /// Returns the answer for `path`, followed by answers to questions that will probably be next.
  wire::Answers answer(const std::string& path);

  Result<std::string> reply(const std::string& path) override { return answer(path).encode(); }
  Result<DependencySet> take_dependencies(const wire::Compiled& compiled) override {
    return recorder_.take(compiled.looked_at);
  }
  const std::string& refused() const noexcept override { return recorder_.refused(); }

 private:
  wire::Answer answer_one(const std::string& path);
  void send_ahead(wire::Answers& to);
  void add_includes(const std::string& path, ByteView text);
  bool send_file_ahead(const std::string& path, wire::Answers& to);
  std::uint32_t number_of(const FileIdentity& identity);
  std::string topmost_absent_folder(const std::string& path);

  FileServer& files_;
  DependencyRecorder recorder_;
  std::vector<std::string> include_folders_;  // virtual, in search order
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> numbers_;  // by device and inode
  std::unordered_set<std::string> sent_;                                      // paths
  struct Include {
    std::string folder;  // of the text that has it
    std::string name;
    bool quoted = false;
  };
  std::deque<Include> includes_;  // of the unit and of files sent, not sent ahead yet
};

}  // namespace cukiln
