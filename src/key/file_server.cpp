// SPDX-License-Identifier: Apache-2.0
#include "key/file_server.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/hasher.hpp"
#include "base/result.hpp"

namespace cukiln {

namespace {

/// What follows `prefix/` in `path`; nothing when `path` is not below it.
std::optional<std::string_view> below(std::string_view path, std::string_view prefix) {
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

/// Nothing is there as far as NVRTC can tell: it goes on to the next folder.
bool is_absence(int error) noexcept {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
         error == ENAMETOOLONG;
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
  const std::uint64_t number = memory_files_.size() + 1;
  memory_files_.insert_or_assign(std::move(virtual_path),
                                 MemoryFile{std::move(text), digest, number});
}

std::vector<std::string> FileServer::candidates(const std::string& virtual_path) const {
  for (const VirtualRoot& root : roots_) {
    if (const auto rest = below(virtual_path, root.prefix)) {
      std::vector<std::string> paths;
      paths.reserve(root.folders.size());
      for (const std::string& folder : root.folders) {
        paths.push_back(rest->empty() ? folder : join_path(folder, *rest));
      }
      return paths;
    }
  }
  if (virtual_path.starts_with("/cukiln/") || virtual_path == "/cukiln") {
    return {};  // below no root of this compile: nothing is there
  }
  return {virtual_path};
}

const ContentHash& FileServer::digest_of(MemoryFile& file) {
  if (!file.digest) {
    file.digest = hash_of(file.text);
  }
  return *file.digest;
}

/// An answer that needs no disk; null: it does.
const FileAnswer* FileServer::known(const std::string& virtual_path) {
  if (const auto at = answers_.find(virtual_path); at != answers_.end()) {
    return &at->second;
  }
  FileAnswer answer;
  if (const auto at = memory_files_.find(virtual_path); at != memory_files_.end()) {
    MemoryFile& file = at->second;
    answer.kind = FileAnswer::Kind::file;
    answer.digest = digest_of(file);
    answer.bytes = file.text;
    answer.identity.inode = file.number;
    answer.real_path = real_path(virtual_path);
  } else if (virtual_path == "/cukiln") {
    answer.kind = FileAnswer::Kind::folder;
  } else {
    return nullptr;
  }
  return &answers_.emplace(virtual_path, std::move(answer)).first->second;
}

const FileAnswer& FileServer::serve(const std::string& virtual_path) {
  if (const FileAnswer* const answer = known(virtual_path)) {
    return *answer;
  }
  FileAnswer answer;
  for (std::string& path : candidates(virtual_path)) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (is_absence(errno)) {
        continue;
      }
      answer.kind = FileAnswer::Kind::error;
      answer.message = fmt::format("cannot look at {}: {}", path, errno_text(errno));
      answer.real_path = std::move(path);
      break;
    }
    answer.real_path = path;
    answer.identity = {status.st_dev, status.st_ino};
    if (S_ISDIR(status.st_mode)) {
      answer.kind = FileAnswer::Kind::folder;
      break;
    }
    // Before the file is opened: a process that is held up afterwards must not make a stamp look
    // older than it is.
    const std::int64_t now = clock_.now_ns();
    auto content = read_file(path);
    if (!content) {
      if (content.error().code() == ErrorCode::not_found) {
        continue;  // went between the two calls
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

FileServer::Found FileServer::look(const std::string& virtual_path, bool hashed) {
  const auto of = [](const FileAnswer& answer) {
    return Found{answer.kind, answer.digest, answer.identity};
  };
  // Not `known`, which finds the real path for messages: that takes a look at the disk.
  if (const auto at = memory_files_.find(virtual_path); at != memory_files_.end()) {
    return {FileAnswer::Kind::file,
            digest_of(at->second),
            {FileIdentity::kMemoryDevice, at->second.number}};
  }
  if (const FileAnswer* const answer = known(virtual_path)) {
    return of(*answer);
  }
  for (const std::string& path : candidates(virtual_path)) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (is_absence(errno)) {
        continue;
      }
      return {FileAnswer::Kind::error, {}, {}};
    }
    const FileIdentity identity{status.st_dev, status.st_ino};
    if (S_ISDIR(status.st_mode)) {
      return {FileAnswer::Kind::folder, {}, identity};
    }
    if (!hashed) {
      return {FileAnswer::Kind::file, {}, identity};
    }
    if (stats_ != nullptr && S_ISREG(status.st_mode)) {
      if (const auto record = stats_->find(path, stamp_of(status))) {
        return {FileAnswer::Kind::file, record->digest, identity};
      }
    }
    return of(serve(virtual_path));
  }
  return {};
}

/// Compares which paths are one file today with which were.
class FileServer::Identities {
 public:
  explicit Identities(std::size_t most) : slots_(std::bit_ceil(2 * most + 1), kFree) {}

  /// False: `identity` is not what observation `number` was.
  bool agree(std::uint32_t number, const FileIdentity& identity) {
    if (number < seen_.size()) {
      return seen_[number] == identity;
    }
    std::size_t at = (identity.inode * 0x9E3779B97F4A7C15u ^ identity.device) >> 7;
    for (at &= slots_.size() - 1; slots_[at] != kFree; at = (at + 1) & (slots_.size() - 1)) {
      if (seen_[slots_[at]] == identity) {
        seen_.push_back(identity);
        return false;  // was a file of its own
      }
    }
    slots_[at] = static_cast<std::uint32_t>(seen_.size());
    seen_.push_back(identity);
    return true;
  }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  std::vector<FileIdentity> seen_;  // by number
  std::vector<std::uint32_t> slots_;
};

FileServer::Mismatch FileServer::compare(const Observation& seen, const Labelled& labelled,
                                         Identities& identities) {
  using What = Mismatch::What;
  const bool was_file = seen.kind == Observation::Kind::file;
  const auto known = labelled.find(seen.path);
  const Found now = known != labelled.end() ? known->second : look(seen.path, was_file);
  if (seen.kind == Observation::Kind::absent) {
    return now.kind == FileAnswer::Kind::absent ? Mismatch{}
                                                : Mismatch{What::appeared, seen.path, {}, {}};
  }
  const auto expected = was_file ? FileAnswer::Kind::file : FileAnswer::Kind::folder;
  // Asked for each, so that later numbers are right where the caller goes on.
  const bool agrees = identities.agree(seen.identity, now.identity);
  if (now.kind != expected) {
    return {What::vanished, seen.path, seen.hash, {}};
  }
  if (was_file && now.digest != seen.hash) {
    return {What::changed, seen.path, seen.hash, now.digest};
  }
  return agrees ? Mismatch{} : Mismatch{What::relinked, seen.path, seen.hash, now.digest};
}

FileServer::Mismatch FileServer::check(const DependencySet& set) {
  const Labelled labelled = std::exchange(labelled_, {});
  Identities identities(set.observations.size());
  for (const Observation& seen : set.observations) {
    if (Mismatch found = compare(seen, labelled, identities); found.what != Mismatch::What::none) {
      return found;
    }
  }
  return {};
}

std::vector<FileServer::Mismatch> FileServer::check_all(const DependencySet& set) {
  std::vector<Mismatch> all;
  Identities identities(set.observations.size());
  for (const Observation& seen : set.observations) {
    if (Mismatch found = compare(seen, {}, identities); found.what != Mismatch::What::none) {
      all.push_back(std::move(found));
    }
  }
  return all;
}

SetTree::Label FileServer::label(const std::string& virtual_path) {
  const Found now =
      labelled_.insert_or_assign(virtual_path, look(virtual_path, true)).first->second;
  switch (now.kind) {
    case FileAnswer::Kind::file: return SetTree::label_of(Observation::Kind::file, now.digest);
    case FileAnswer::Kind::folder: return SetTree::label_of(Observation::Kind::folder, {});
    case FileAnswer::Kind::absent: return SetTree::label_of(Observation::Kind::absent, {});
    case FileAnswer::Kind::error: break;
  }
  SetTree::Label none;
  none.fill(1);
  return none;
}

std::string FileServer::real_path(const std::string& virtual_path) const {
  const std::vector<std::string> paths = candidates(virtual_path);
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) {
      return path;
    }
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
