#include "compile/worker/served_files.hpp"

#include <unistd.h>

#include <utility>

namespace cukiln::worker {

namespace {

/// Parts of the tree that are the same for everybody: the folders above the translation unit. NVRTC
/// looks at them to find out where it is.
constexpr std::uint64_t kOwnDevice = 1;

const ServedFile& nothing() {
  static const ServedFile absent{};
  return absent;
}

}  // namespace

ServedFiles& ServedFiles::instance() {
  static ServedFiles* files = new ServedFiles;  // outlives every thread of NVRTC's
  return *files;
}

void ServedFiles::begin(wire::FrameSocket* socket, const std::string& unit_path) {
  socket_ = socket;
  std::uint64_t inode = 0;
  known_["/"] = {wire::FileKind::folder, kOwnDevice, ++inode, {}, false};
  known_["."] = known_["/"];
  for (std::size_t slash = unit_path.find('/', 1); slash != std::string::npos;
       slash = unit_path.find('/', slash + 1)) {
    known_[unit_path.substr(0, slash)] = {wire::FileKind::folder, kOwnDevice, ++inode, {}, false};
  }
  observing_ = true;
}

void ServedFiles::add(const std::string& path, std::string bytes) {
  known_[path] = {wire::FileKind::file, kOwnDevice, 1000 + known_.size(),
                  SharedBytes(std::move(bytes)), false};
}

ServedFiles::Unasked ServedFiles::end() {
  observing_ = false;
  known_.clear();
  absent_folders_.clear();
  return std::exchange(unasked_, {});
}

bool ServedFiles::below_absent_folder(const std::string& path) const {
  for (const std::string& folder : absent_folders_) {
    if (path.compare(0, folder.size(), folder) == 0) {
      return true;
    }
  }
  return false;
}

const ServedFile& ServedFiles::find(const char* path) {
  const std::lock_guard lock(mutex_);
  std::string name(path);
  if (const auto known = known_.find(name); known != known_.end()) {
    if (std::exchange(known->second.offered, false)) {
      unasked_.used.push_back(name);
    }
    return known->second;
  }
  // A relative path is one of NVRTC's own names (`__nv_name_map`): the translation unit and every
  // search path are absolute, so nothing that a user wrote comes here, and nothing is ever there.
  if (name.empty() || name.front() != '/' || socket_ == nullptr) {
    return nothing();
  }
  if (below_absent_folder(name)) {
    unasked_.inferred_absent.push_back(name);
    return known_.emplace(std::move(name), ServedFile{}).first->second;
  }
  return ask(name);
}

const ServedFile& ServedFiles::ask(const std::string& path) {
  wire::Frame frame;
  const auto op = static_cast<std::uint16_t>(wire::WorkerOp::ask);
  if (socket_->send(op, {path}) != wire::IoStatus::ok ||
      socket_->receive(frame) != wire::IoStatus::ok ||
      frame.op != static_cast<std::uint16_t>(wire::WorkerOp::answer)) {
    ::_exit(1);  // the owner is gone, or is none of ours
  }
  auto told = wire::Answers::decode(frame.body);
  if (!told || told->answers.empty() || told->answers.front().path != path) {
    ::_exit(1);
  }
  bool offered = false;
  for (wire::Answer& answer : told->answers) {
    learn(std::move(answer), offered);
    offered = true;
  }
  return known_.at(path);
}

void ServedFiles::learn(wire::Answer answer, bool offered) {
  if (!answer.absent_folder.empty()) {
    absent_folders_.push_back(answer.absent_folder + "/");
  }
  known_.try_emplace(std::move(answer.path), ServedFile{answer.kind, answer.device, answer.inode,
                                                        std::move(answer.bytes), offered});
}

}  // namespace cukiln::worker
