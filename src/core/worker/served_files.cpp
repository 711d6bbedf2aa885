// SPDX-License-Identifier: Apache-2.0
#include "core/worker/served_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/key/compile_request.hpp"
#include "core/key/file_macro.hpp"
#include "core/key/time_macro.hpp"
#include "core/worker/clock.hpp"

namespace cukiln::worker {

namespace {

// The device number of folders that exist in every compile: those above the translation unit, which
// NVRTC stats to find its working directory.
constexpr std::uint64_t kOwnDevice = 1;
constexpr std::uint64_t kServedDevice = 2;

const ServedFile& absent_file() {
  static const ServedFile absent{};
  return absent;
}

}  // namespace

ServedFiles& ServedFiles::instance() {
  static ServedFiles* files = new ServedFiles;  // never destroyed: NVRTC's threads may outlive main
  return *files;
}

void ServedFiles::begin(wire::FrameSocket* socket, const std::string& unit_path) {
  socket_ = socket;
  working_folder_ = kWorkRoot;
  std::uint64_t inode = 0;
  const auto own_folder = [&](const std::string& path) {
    known_[path] = {wire::FileKind::folder, kOwnDevice, ++inode, {}, 0, true};
  };
  own_folder("/");
  own_folder(kWorkRoot);
  for (std::size_t slash = unit_path.find('/', 1); slash != std::string::npos;
       slash = unit_path.find('/', slash + 1)) {
    own_folder(unit_path.substr(0, slash));
  }
  uses_time_ = false;
  naming_files_.clear();
  cuda_folders_.clear();
  observing_ = true;
}

void ServedFiles::begin_program(wire::FrameSocket* socket, const std::string& working_folder) {
  socket_ = socket;
  working_folder_ = working_folder;
  uses_time_ = false;
  naming_files_.clear();
  cuda_folders_.clear();
  observing_ = true;
}

void ServedFiles::add(const std::string& path, std::string bytes) {
  known_[path] = {wire::FileKind::file,          kOwnDevice, 1000 + known_.size(),
                  SharedBytes(std::move(bytes)), 0,          true};
}

std::vector<std::string> ServedFiles::end() {
  observing_ = false;
  known_.clear();
  absent_folders_.clear();
  inodes_.clear();
  return std::exchange(accessed_, {});
}

void ServedFiles::make_names_unusable(bool unusable) {
  makes_unusable_ = unusable;
  made_unusable_ = false;
  looked_for_unusable_ = false;
  pastes_raw_strings_ = false;
}

SharedBytes ServedFiles::note_read(std::string_view path, const ServedFile& file) {
  if (!uses_time_ && !find_time_macro(file.bytes).empty()) {
    uses_time_ = true;
  }
  const bool names_itself = names_its_file(file.bytes);
  const bool pastes = makes_unusable_ && may_paste_raw_strings(file.bytes);
  const std::string_view folder = folder_of_cuda_library(path, file.bytes);
  const MutexLock lock(mutex_);
  if (!folder.empty()) {
    cuda_folders_.emplace_back(folder);
  }
  pastes_raw_strings_ = pastes_raw_strings_ || (pastes && !is_of_cuda(path));
  if (!names_itself || is_of_cuda(path)) {
    return file.bytes;
  }
  if (makes_unusable_) {
    if (auto unusable = with_unusable_names(file.bytes)) {
      made_unusable_ = true;
      return SharedBytes(*std::move(unusable));
    }
  }
  naming_files_.emplace_back(path);
  return file.bytes;
}

bool ServedFiles::is_of_cuda(std::string_view path) const {
  return std::any_of(cuda_folders_.begin(), cuda_folders_.end(),
                     [&](const std::string& folder) { return path.starts_with(folder); });
}

bool ServedFiles::names_files() const {
  const MutexLock lock(mutex_);
  return std::any_of(naming_files_.begin(), naming_files_.end(),
                     [&](const std::string& path) { return !is_of_cuda(path); });
}

bool ServedFiles::below_absent_folder(const std::string& path) const {
  for (const std::string& folder : absent_folders_) {
    if (path.starts_with(folder)) {
      return true;
    }
  }
  return false;
}

/// True for names of texts built into NVRTC. It probes the working directory for them, but needs no
/// file there.
bool ServedFiles::is_builtin_name(std::string_view path) const {
  constexpr std::string_view kNames[] = {"__nv_name_map", "__nv_nvrtc_builtin_header.h"};
  const std::string_view folder = working_folder_;
  return path.substr(0, folder.size()) == folder && path.size() > folder.size() &&
         std::find(std::begin(kNames), std::end(kNames), path.substr(folder.size() + 1)) !=
             std::end(kNames);
}

std::string ServedFiles::absolute(const char* path) const {
  if (*path == '/') {
    return path;
  }
  if (std::strcmp(path, ".") == 0) {
    return working_folder_;
  }
  return (working_folder_ == "/" ? std::string() : working_folder_) + "/" + path;
}

const ServedFile& ServedFiles::find(const char* path) {
  const MutexLock lock(mutex_);
  std::string name = absolute(path);
  if (makes_unusable_ && name.find(kUnusableName) != std::string::npos) {
    looked_for_unusable_ = true;
  }
  if (const auto known = known_.find(name); known != known_.end()) {
    return record_access(name, known->second);
  }
  if (*path == '\0' || socket_ == nullptr || is_builtin_name(name)) {
    return absent_file();
  }
  if (!below_absent_folder(name)) {
    ask(name);
  }
  return record_access(name, known_[name]);
}

/// The first access to a path makes it a dependency.
const ServedFile& ServedFiles::record_access(const std::string& path, ServedFile& file) {
  if (!std::exchange(file.accessed, true)) {
    accessed_.push_back(path);
    if (file.file != 0) {
      file.device = kServedDevice;
      file.inode = inodes_.try_emplace(file.file, inodes_.size() + 1).first->second;
    }
  }
  return file;
}

void ServedFiles::ask(const std::string& path) {
  const RealClock real;  // for the socket's deadlines
  wire::Frame frame;
  const auto op = static_cast<std::uint16_t>(wire::WorkerOp::ask);
  if (socket_->send(op, {path}) != wire::IoStatus::ok ||
      socket_->receive(frame) != wire::IoStatus::ok ||
      frame.op != static_cast<std::uint16_t>(wire::WorkerOp::answer)) {
    ::_exit(1);  // the owner is gone, or violates the protocol
  }
  auto reply = wire::Answers::decode(frame.body);
  if (!reply || reply->answers.empty() || reply->answers.front().path != path) {
    ::_exit(1);
  }
  for (wire::Answer& answer : reply->answers) {
    add_answer(std::move(answer));
  }
}

/// Ignores answers below an absent folder: paths there have been reported absent, and an answer
/// must not change during a compile.
void ServedFiles::add_answer(wire::Answer answer) {
  if (below_absent_folder(answer.path)) {
    return;
  }
  if (!answer.absent_folder.empty()) {
    absent_folders_.push_back(answer.absent_folder + "/");
  }
  ServedFile file;
  file.kind = answer.kind;
  file.bytes = std::move(answer.bytes);
  file.file = answer.file;
  known_.try_emplace(std::move(answer.path), std::move(file));
}

}  // namespace cukiln::worker
