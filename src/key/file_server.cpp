#include "key/file_server.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

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

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

FileServer::FileServer(std::vector<VirtualRoot> roots, StatCache* stats, const Clock& clock)
    : roots_(std::move(roots)), stats_(stats), clock_(clock) {
  // Longest prefix first: /cukiln/inc/1 must not take what belongs to /cukiln/inc/10.
  std::stable_sort(roots_.begin(), roots_.end(), [](const VirtualRoot& a, const VirtualRoot& b) {
    return a.prefix.size() > b.prefix.size();
  });
}

void FileServer::add_memory_file(std::string virtual_path, SharedBytes text) {
  memory_files_.insert_or_assign(std::move(virtual_path), std::move(text));
}

std::vector<std::string> FileServer::candidates(const std::string& virtual_path) const {
  for (const VirtualRoot& root : roots_) {
    if (const auto rest = below(virtual_path, root.prefix)) {
      std::vector<std::string> paths;
      for (const std::string& folder : root.folders) {
        paths.push_back(rest->empty() ? folder : join_path(folder, *rest));
      }
      return paths;
    }
  }
  if (starts_with(virtual_path, "/cukiln/") || virtual_path == "/cukiln") {
    return {};  // below no root of this compile: nothing is there
  }
  return {virtual_path};
}

const FileAnswer& FileServer::serve(const std::string& virtual_path) {
  if (const auto known = answers_.find(virtual_path); known != answers_.end()) {
    return known->second;
  }
  FileAnswer answer;
  if (const auto in_memory = memory_files_.find(virtual_path); in_memory != memory_files_.end()) {
    answer.kind = FileAnswer::Kind::file;
    answer.digest = digest_of(in_memory->second);
    answer.bytes = in_memory->second;
    answer.real_path = real_path(virtual_path);
    return answers_.emplace(virtual_path, std::move(answer)).first->second;
  }
  if (virtual_path == "/cukiln") {
    answer.kind = FileAnswer::Kind::folder;
  }
  for (std::string& path : candidates(virtual_path)) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) {
        continue;
      }
      answer.kind = FileAnswer::Kind::error;
      answer.message = fmt::format("cannot look at {}: {}", path, errno_text(errno));
      answer.real_path = std::move(path);
      break;
    }
    answer.real_path = path;
    if (S_ISDIR(status.st_mode)) {
      answer.kind = FileAnswer::Kind::folder;
      break;
    }
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
    answer.digest = digest_of(content->bytes);
    answer.bytes = std::move(content->bytes);
    if (stats_ != nullptr) {
      stats_->put({path, content->stamp, answer.digest, {}, clock_.now_ns()});
    }
    break;
  }
  if (answer.kind == FileAnswer::Kind::absent) {
    answer.real_path.clear();
  }
  return answers_.emplace(virtual_path, std::move(answer)).first->second;
}

bool FileServer::exists(const std::string& virtual_path, bool* is_folder) {
  if (const auto known = answers_.find(virtual_path); known != answers_.end()) {
    *is_folder = known->second.kind == FileAnswer::Kind::folder;
    return known->second.kind != FileAnswer::Kind::absent;
  }
  if (memory_files_.contains(virtual_path)) {
    *is_folder = false;
    return true;
  }
  for (const std::string& path : candidates(virtual_path)) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) {
      *is_folder = S_ISDIR(status.st_mode);
      return true;
    }
  }
  *is_folder = virtual_path == "/cukiln";
  return *is_folder;
}

FileServer::Mismatch FileServer::check_present(const DependencySet::Present& present) {
  using What = Mismatch::What;
  if (!answers_.contains(present.path) && !memory_files_.contains(present.path) &&
      stats_ != nullptr) {
    for (const std::string& path : candidates(present.path)) {
      struct stat status {};
      if (::stat(path.c_str(), &status) != 0) {
        continue;
      }
      if (const auto known = stats_->find(path, stamp_of(status));
          known && S_ISREG(status.st_mode)) {
        if (known->digest == present.digest) {
          return {};
        }
        return {What::changed, present.path, present.digest, known->digest};
      }
      break;
    }
  }
  const FileAnswer& answer = serve(present.path);
  if (answer.kind != FileAnswer::Kind::file) {
    return {What::vanished, present.path, present.digest, {}};
  }
  if (answer.digest != present.digest) {
    return {What::changed, present.path, present.digest, answer.digest};
  }
  return {};
}

FileServer::Mismatch FileServer::check(const DependencySet& set) {
  using What = Mismatch::What;
  for (const DependencySet::Present& present : set.present) {
    if (Mismatch found = check_present(present); found.what != What::none) {
      return found;
    }
  }
  bool is_folder = false;
  for (const std::string& folder : set.folders) {
    if (!exists(folder, &is_folder) || !is_folder) {
      return {What::vanished, folder, {}, {}};
    }
  }
  for (const std::string& absent : set.absent) {
    if (exists(absent, &is_folder)) {
      return {What::appeared, absent, {}, {}};
    }
  }
  return {};
}

std::vector<FileServer::Mismatch> FileServer::check_all(const DependencySet& set) {
  std::vector<Mismatch> all;
  const auto collect = [&](const DependencySet& part) {
    if (Mismatch found = check(part); found.what != Mismatch::What::none) {
      all.push_back(std::move(found));
    }
  };
  for (const DependencySet::Present& present : set.present) {
    collect({{present}, {}, {}});
  }
  for (const std::string& folder : set.folders) {
    collect({{}, {folder}, {}});
  }
  for (const std::string& absent : set.absent) {
    collect({{}, {}, {absent}});
  }
  return all;
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
  return starts_with(virtual_path, source_prefix) ? virtual_path.substr(source_prefix.size())
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
