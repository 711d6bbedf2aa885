// SPDX-License-Identifier: Apache-2.0
#include "core/key/file_server.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <unordered_set>
#include <utility>

#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/key/std_headers.hpp"

namespace cukiln {

namespace {

/// `path` relative to `prefix`; nothing if it is not within it.
std::optional<std::string_view> relative_to(std::string_view path, std::string_view prefix) {
  if (path.substr(0, prefix.size()) != prefix) {
    return std::nullopt;
  }
  path.remove_prefix(prefix.size());
  if (path.empty()) {
    return path;
  }
  if (path.front() != '/') {
    return std::nullopt;
  }
  return path.substr(1);
}

/// The errors after which NVRTC tries the next include folder, as if the path were absent.
bool is_absence(int error) noexcept {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
         error == ENAMETOOLONG;
}

/// The answer for a path below kStdFolder, or for that itself; absent for every other path.
FileAnswer std_answer(const std::string& path) {
  FileAnswer answer;
  answer.identity = {FileIdentity::kStdDevice, 0};
  if (path == kStdFolder || path == join_path(kStdFolder, "sys")) {  // of <sys/types.h>
    answer.kind = FileAnswer::Kind::folder;
    answer.real_path = path;
  } else if (const auto name = relative_to(path, kStdFolder)) {
    if (const auto header = std_header(*name)) {
      answer.kind = FileAnswer::Kind::file;
      answer.bytes = SharedBytes::borrowed(header->text);
      answer.digest = header->digest;
      answer.identity.inode = header->inode;
      answer.real_path = path;
    }
  }
  return answer;
}

}  // namespace

FileServer::FileServer(std::vector<VirtualRoot> roots, StatCache* stats, const Clock& clock)
    : roots_(std::move(roots)), stats_(stats), clock_(clock) {
  // Longest prefix first: /cukiln/inc/1 must not take what belongs to /cukiln/inc/10.
  std::stable_sort(roots_.begin(), roots_.end(), [](const VirtualRoot& a, const VirtualRoot& b) {
    return a.prefix.size() > b.prefix.size();
  });
}

void FileServer::add_memory_file(std::string virtual_path, SharedBytes text,
                                 std::optional<ContentHash> digest) {
  const std::uint64_t inode = memory_files_.size() + 1;
  memory_files_.insert_or_assign(std::move(virtual_path),
                                 MemoryFile{std::move(text), digest, inode});
}

std::vector<std::string> FileServer::candidates(const std::string& virtual_path) const {
  for (const VirtualRoot& root : roots_) {
    if (const auto rest = relative_to(virtual_path, root.prefix)) {
      std::vector<std::string> paths;
      paths.reserve(root.folders.size());
      for (const std::string& folder : root.folders) {
        paths.push_back(rest->empty() ? folder : join_path(folder, *rest));
      }
      return paths;
    }
  }
  if (virtual_path.starts_with("/cukiln/") || virtual_path == "/cukiln") {
    return {};  // a root that this compile does not have
  }
  return {virtual_path};
}

const ContentHash& FileServer::digest_of(MemoryFile& file) {
  if (!file.digest) {
    file.digest = hash_of(file.text);
  }
  return *file.digest;
}

/// A cached answer, or that of a memory file; null if the disk has to be read.
const FileAnswer* FileServer::answer_without_disk(const std::string& virtual_path) {
  if (const auto at = answers_.find(virtual_path); at != answers_.end()) {
    return &at->second;
  }
  FileAnswer answer;
  if (const auto at = memory_files_.find(virtual_path); at != memory_files_.end()) {
    MemoryFile& file = at->second;
    answer.kind = FileAnswer::Kind::file;
    answer.digest = digest_of(file);
    answer.bytes = file.text;
    answer.identity.inode = file.inode;
    answer.real_path = real_path(virtual_path);
  } else if (virtual_path == "/cukiln") {
    answer.kind = FileAnswer::Kind::folder;
  } else {
    return nullptr;
  }
  return &answers_.emplace(virtual_path, std::move(answer)).first->second;
}

const FileAnswer& FileServer::serve(const std::string& virtual_path) {
  if (const FileAnswer* const answer = answer_without_disk(virtual_path)) {
    return *answer;
  }
  FileAnswer answer;
  for (std::string& path : candidates(virtual_path)) {
    if (is_within(path, kStdFolder)) {
      answer = std_answer(path);
      continue;  // the last folder
    }
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (is_absence(errno)) {
        continue;
      }
      answer.kind = FileAnswer::Kind::error;
      answer.message = fmt::format("cannot stat {}: {}", path, errno_text(errno));
      answer.real_path = std::move(path);
      break;
    }
    answer.real_path = path;
    answer.identity = {status.st_dev, status.st_ino};
    if (S_ISDIR(status.st_mode)) {
      answer.kind = FileAnswer::Kind::folder;
      break;
    }
    // Read before the file is opened: if the process is suspended in between, the record must not
    // look younger than the bytes are, or the check for racy stamps would not see it.
    const std::int64_t now = clock_.now_ns();
    auto content = read_file(path);
    if (!content) {
      if (content.error().code() == ErrorCode::not_found) {
        continue;  // removed between the two calls
      }
      answer.kind = FileAnswer::Kind::error;
      answer.message = content.error().message();
      break;
    }
    answer.kind = FileAnswer::Kind::file;
    answer.identity = {content->stamp.device, content->stamp.inode};
    answer.digest = hash_of(content->bytes);
    answer.bytes = std::move(content->bytes);
    if (stats_ != nullptr) {
      stats_->put({path, content->stamp, answer.digest, {}, now});
    }
    break;
  }
  if (answer.kind == FileAnswer::Kind::absent) {
    answer.real_path.clear();
  }
  return answers_.emplace(virtual_path, std::move(answer)).first->second;
}

/// The folders that one check found absent, so that it asks for nothing below them. A search for
/// headers looks in each include folder, and where that has no `cuda`, for none of the hundreds
/// below it.
class FileServer::AbsentFolders {
 public:
  /// True if a path is below one of them.
  bool contain(const std::string& path) const noexcept {
    return std::any_of(folders_.begin(), folders_.end(),
                       [&](const std::string& folder) { return is_within(path, folder); });
  }

  /// Notes that a path is absent. The first few cost nothing: most checks have no more.
  void add(const std::string& path) {
    constexpr std::size_t kFewPaths = 8;
    constexpr std::size_t kMaxFolders = 32;
    if (++count_ <= kFewPaths || folders_.size() == kMaxFolders) {
      return;
    }
    std::string absent;  // the highest
    std::string folder = folder_of(path);
    struct stat status {};
    while (folder.size() > 1 && !present_.contains(folder)) {
      if (::stat(folder.c_str(), &status) == 0 || errno != ENOENT) {
        present_.insert(std::move(folder));
        break;
      }
      absent = std::move(folder);
      folder = folder_of(absent);
    }
    if (!absent.empty()) {
      folders_.push_back(std::move(absent));
    }
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::string> folders_;
  std::unordered_set<std::string> present_;  // or not to be examined
};

FileServer::PathState FileServer::probe(const std::string& virtual_path, bool wants_digest,
                                        AbsentFolders* absent) {
  const auto state_of = [](const FileAnswer& answer) {
    return PathState{answer.kind, answer.digest, answer.identity};
  };
  // Before answer_without_disk, which calls stat to find a memory file's real path for messages.
  if (const auto at = memory_files_.find(virtual_path); at != memory_files_.end()) {
    return {FileAnswer::Kind::file,
            digest_of(at->second),
            {FileIdentity::kMemoryDevice, at->second.inode}};
  }
  if (const FileAnswer* const answer = answer_without_disk(virtual_path)) {
    return state_of(*answer);
  }
  for (const std::string& path : candidates(virtual_path)) {
    if (is_within(path, kStdFolder)) {
      return state_of(std_answer(path));  // the last folder
    }
    if (absent != nullptr && absent->contain(path)) {
      continue;
    }
    const auto status = status_of(path);
    if (!status) {
      if (is_absence(errno)) {
        if (absent != nullptr && errno == ENOENT) {
          absent->add(path);
        }
        continue;
      }
      return {FileAnswer::Kind::error, {}, {}};
    }
    const FileIdentity identity{status->stamp.device, status->stamp.inode};
    if (S_ISDIR(status->mode)) {
      return {FileAnswer::Kind::folder, {}, identity};
    }
    if (!wants_digest) {
      return {FileAnswer::Kind::file, {}, identity};
    }
    if (stats_ != nullptr && S_ISREG(status->mode)) {
      if (const auto digest = stats_->find(path, status->stamp, status->mount)) {
        return {FileAnswer::Kind::file, *digest, identity};
      }
    }
    return state_of(serve(virtual_path));
  }
  return {};
}

/// Assigns identity classes to files in the order of a dependency set, and compares them with the
/// recorded ones. An open-addressing hash table from file to class: this is part of every hit.
class FileServer::IdentityClasses {
 public:
  explicit IdentityClasses(std::size_t max_count)
      : slots_(std::bit_ceil(2 * max_count + 1), kFree) {}

  /// False if the file belongs to another class than the recorded one.
  bool matches(std::uint32_t recorded_class, const FileIdentity& identity) {
    if (recorded_class < files_.size()) {
      return files_[recorded_class] == identity;
    }
    std::size_t at = (identity.inode * 0x9E3779B97F4A7C15u ^ identity.device) >> 7;
    for (at &= slots_.size() - 1; slots_[at] != kFree; at = (at + 1) & (slots_.size() - 1)) {
      if (files_[slots_[at]] == identity) {
        files_.push_back(identity);
        return false;  // recorded as a file of its own, and now the same as an earlier one
      }
    }
    slots_[at] = static_cast<std::uint32_t>(files_.size());
    files_.push_back(identity);
    return true;
  }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  std::vector<FileIdentity> files_;  // by class
  std::vector<std::uint32_t> slots_;
};

bool FileServer::is_as_recorded(std::string_view virtual_path) const noexcept {
  const bool counts = std::any_of(roots_.begin(), roots_.end(), [&](const VirtualRoot& root) {
    return root.as_recorded && relative_to(virtual_path, root.prefix);
  });
  return counts && !is_std_header(virtual_path);
}

FileServer::Mismatch FileServer::compare(const Observation& recorded, const PathStates& labels,
                                         bool trust_toolkit, IdentityClasses& classes,
                                         AbsentFolders& absent) {
  using What = Mismatch::What;
  if (trust_toolkit && is_as_recorded(recorded.path)) {
    // A file of the user that was the same file as one of these is none now: a miss.
    const FileIdentity own{FileIdentity::kRecordedDevice, recorded.identity};
    return recorded.kind == Observation::Kind::absent || classes.matches(recorded.identity, own)
               ? Mismatch{}
               : Mismatch{What::relinked, recorded.path, recorded.hash, recorded.hash};
  }
  const bool was_file = recorded.kind == Observation::Kind::file;
  const auto label = labels.find(recorded.path);
  const PathState now =
      label != labels.end() ? label->second : probe(recorded.path, was_file, &absent);
  if (recorded.kind == Observation::Kind::absent) {
    return now.kind == FileAnswer::Kind::absent ? Mismatch{}
                                                : Mismatch{What::appeared, recorded.path, {}, {}};
  }
  const auto expected = was_file ? FileAnswer::Kind::file : FileAnswer::Kind::folder;
  // Before any return: check_all goes on after a mismatch, and later classes count from here.
  const bool same_class = classes.matches(recorded.identity, now.identity);
  if (now.kind != expected) {
    return {What::vanished, recorded.path, recorded.hash, {}};
  }
  if (was_file && now.digest != recorded.hash) {
    return {What::changed, recorded.path, recorded.hash, now.digest};
  }
  return same_class ? Mismatch{}
                    : Mismatch{What::relinked, recorded.path, recorded.hash, now.digest};
}

FileServer::Mismatch FileServer::check(const DependencySet& set, bool trust_toolkit) {
  const PathStates labels = std::exchange(labels_, {});
  IdentityClasses classes(set.observations.size());
  AbsentFolders absent;
  for (const Observation& recorded : set.observations) {
    Mismatch found = compare(recorded, labels, trust_toolkit, classes, absent);
    if (found.what != Mismatch::What::none) {
      return found;
    }
  }
  return {};
}

std::vector<FileServer::Mismatch> FileServer::check_all(const DependencySet& set,
                                                        bool trust_toolkit) {
  std::vector<Mismatch> all;
  IdentityClasses classes(set.observations.size());
  AbsentFolders absent;
  for (const Observation& recorded : set.observations) {
    Mismatch found = compare(recorded, {}, trust_toolkit, classes, absent);
    if (found.what != Mismatch::What::none) {
      all.push_back(std::move(found));
    }
  }
  return all;
}

SetTree::Label FileServer::label(const std::string& virtual_path) {
  const PathState now =
      labels_.insert_or_assign(virtual_path, probe(virtual_path, true, nullptr)).first->second;
  switch (now.kind) {
    case FileAnswer::Kind::file: return SetTree::label_of(Observation::Kind::file, now.digest);
    case FileAnswer::Kind::folder: return SetTree::label_of(Observation::Kind::folder, {});
    case FileAnswer::Kind::absent: return SetTree::label_of(Observation::Kind::absent, {});
    case FileAnswer::Kind::error: break;
  }
  SetTree::Label unreadable;  // equal to no recorded label: the lookup is a miss
  unreadable.fill(1);
  return unreadable;
}

std::string FileServer::real_path(const std::string& virtual_path) const {
  const std::vector<std::string> paths = candidates(virtual_path);
  for (const std::string& path : paths) {
    struct stat status {};
    if (is_within(path, kStdFolder) ? std_answer(path).kind != FileAnswer::Kind::absent
                                    : ::stat(path.c_str(), &status) == 0) {
      return path;
    }
  }
  if (is_std_header(virtual_path)) {
    return kStdFolder + virtual_path.substr(std::string_view(kToolkitRoot).size());
  }
  if (!paths.empty()) {
    return paths.front();
  }
  const std::string source_prefix = std::string(kSourceRoot) + "/";
  return virtual_path.starts_with(source_prefix) ? virtual_path.substr(source_prefix.size())
                                                 : virtual_path;
}

std::string FileServer::with_real_paths(ByteView log) const {
  static constexpr std::string_view kVirtual = "/cukiln/";
  std::string out;
  while (!log.empty()) {
    const std::size_t at = log.find(kVirtual);
    out.append(log.substr(0, at));
    if (at == ByteView::npos) {
      break;
    }
    log.remove_prefix(at);
    const std::size_t end = std::min(log.find_first_of(" \t\r\n\"'`<>:(),;"), log.size());
    out += real_path(std::string(log.substr(0, end)));
    log.remove_prefix(end);
  }
  return out;
}

}  // namespace cukiln
