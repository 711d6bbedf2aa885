#include "compile/file_questions.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace cukiln {

namespace {

/// A device number that no file system has: files that exist in memory only.
constexpr std::uint64_t kMemoryDevice = ~std::uint64_t{0};

bool is_below(const std::string& path, std::string_view folder) {
  return path.size() > folder.size() && path.compare(0, folder.size(), folder) == 0 &&
         path[folder.size()] == '/';
}

}  // namespace

FileQuestions::FileQuestions(const CompileRequest& request, const VirtualSource& unit,
                             FileServer& files)
    : files_(files) {
  for (const VirtualSource& source : request.sources) {
    sources_[source.path] = source.text;
    look_for_time(source.text);
  }
  sources_[unit.path] = unit.text;
}

void FileQuestions::look_for_time(ByteView text) {
  // Also in comments and strings: a wrong yes costs one compile each time, a wrong no an old date.
  uses_time_ = uses_time_ || text.find("__TIME__") != ByteView::npos ||
               text.find("__DATE__") != ByteView::npos ||
               text.find("__TIMESTAMP__") != ByteView::npos;
}

/// `#pragma once` goes by device and inode. They are those of the real file, so that a header
/// reached by two paths (`a/../x.h`, a link) is one header, as it is for nvcc.
void FileQuestions::identify(const FileAnswer& from, const std::string& path, wire::Answer& to) {
  struct stat status {};
  if (!from.real_path.empty() && from.real_path.front() == '/' &&
      ::stat(from.real_path.c_str(), &status) == 0) {
    to.device = status.st_dev;
    to.inode = status.st_ino;
    return;
  }
  to.device = kMemoryDevice;
  to.inode = memory_inodes_.try_emplace(path, memory_inodes_.size() + 1).first->second;
}

std::string FileQuestions::topmost_absent_folder(const std::string& path) {
  // Sources may lie in folders that exist nowhere else, so nothing is inferred below their root.
  if (is_below(path, kSourceRoot)) {
    return {};
  }
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    std::string folder = path.substr(0, slash);
    const FileAnswer::Kind kind = files_.serve(folder).kind;
    if (kind == FileAnswer::Kind::absent) {
      return folder;
    }
    if (kind != FileAnswer::Kind::folder) {
      return {};
    }
  }
  return {};
}

FileQuestions::Reply FileQuestions::answer(const std::string& path) {
  Reply reply;
  if (const auto source = sources_.find(path); source != sources_.end()) {
    reply.answer.kind = wire::FileKind::file;
    identify({}, path, reply.answer);
    reply.bytes = source->second;
    return reply;
  }
  const FileAnswer& found = files_.serve(path);
  switch (found.kind) {
    case FileAnswer::Kind::file:
      reply.answer.kind = wire::FileKind::file;
      identify(found, path, reply.answer);
      reply.bytes = found.bytes;
      dependencies_.present.push_back({path, found.digest});
      break;
    case FileAnswer::Kind::folder:
      reply.answer.kind = wire::FileKind::folder;
      identify(found, path, reply.answer);
      dependencies_.folders.push_back(path);
      break;
    case FileAnswer::Kind::absent:
      reply.answer.absent_folder = topmost_absent_folder(path);
      dependencies_.absent.push_back(path);
      break;
    case FileAnswer::Kind::error:
      reply.answer.kind = wire::FileKind::error;
      if (refused_.empty()) {
        refused_ = found.message;
      }
      break;
  }
  return reply;
}

DependencySet FileQuestions::take_dependencies(std::vector<std::string> inferred_absent) {
  std::move(inferred_absent.begin(), inferred_absent.end(),
            std::back_inserter(dependencies_.absent));
  dependencies_.sort();
  return std::move(dependencies_);
}

}  // namespace cukiln
