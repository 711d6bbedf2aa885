#include "compile/file_questions.hpp"

#include <sys/stat.h>

#include "base/file.hpp"
#include "compile/include_outlook.hpp"

namespace cukiln {

namespace {

/// A device number that no file system has: files that exist in memory only.
constexpr std::uint64_t kMemoryDevice = ~std::uint64_t{0};

// What one reply carries at most beyond the answer: enough to spare nearly all questions, and
// little enough that the worker is not kept waiting for it.
constexpr std::size_t kMaxOffers = 96;
constexpr std::size_t kMaxOfferedBytes = 1 << 20;

}  // namespace

FileQuestions::FileQuestions(const CompileRequest& request, const VirtualSource& unit,
                             FileServer& files)
    : files_(files), looked_at_(request, unit) {
  for (const std::string& argument : request.options.arguments) {
    if (argument.compare(0, 2, "-I") == 0) {
      include_folders_.push_back(argument.substr(2));
    }
  }
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

/// When a whole folder is absent, the worker need not ask for each name in it: with CUB included,
/// that spares two questions of three.
std::string FileQuestions::topmost_absent_folder(const std::string& path) {
  std::size_t first = 1;  // where the name of the topmost folder that may be absent begins
  if (is_within(path, kIncludeRoot)) {
    first = std::string_view(kIncludeRoot).size() + 1;
  } else if (is_within(path, kToolkitRoot)) {
    first = std::string_view(kToolkitRoot).size();
  } else if (is_within(path, "/cukiln")) {
    return {};  // a source may lie in a folder that exists nowhere else
  }
  for (std::size_t slash = path.find('/', first); slash != std::string::npos;
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

wire::Answer FileQuestions::answer_one(const std::string& path) {
  wire::Answer answer;
  answer.path = path;
  if (const SharedBytes* const source = looked_at_.source(path)) {
    answer.kind = wire::FileKind::file;
    identify({}, path, answer);
    answer.bytes = *source;
    return answer;
  }
  const FileAnswer& found = files_.serve(path);
  switch (found.kind) {
    case FileAnswer::Kind::file:
      answer.kind = wire::FileKind::file;
      identify(found, path, answer);
      answer.bytes = found.bytes;
      break;
    case FileAnswer::Kind::folder:
      answer.kind = wire::FileKind::folder;
      identify(found, path, answer);
      break;
    case FileAnswer::Kind::absent: answer.absent_folder = topmost_absent_folder(path); break;
    case FileAnswer::Kind::error: answer.kind = wire::FileKind::error; break;
  }
  return answer;
}

wire::Answers FileQuestions::answer(const std::string& path) {
  wire::Answers reply;
  reply.answers.push_back(answer_one(path));
  note(path);
  told_.insert(path);
  const wire::Answer& answer = reply.answers.front();
  if (answer.kind == wire::FileKind::file) {
    unread_.push_back({path, answer.bytes});
  }
  offer_more(reply);
  return reply;
}

void FileQuestions::offer_more(wire::Answers& to) {
  std::size_t bytes = 0;
  std::size_t counted = to.answers.size();
  while (!unread_.empty() && to.answers.size() < kMaxOffers && bytes < kMaxOfferedBytes) {
    const Unread next = std::move(unread_.front());
    unread_.pop_front();
    offer_includes(next.path, next.text, to);
    for (; counted < to.answers.size(); ++counted) {
      bytes += to.answers[counted].bytes.size();
    }
  }
}

void FileQuestions::offer_includes(const std::string& path, ByteView text, wire::Answers& to) {
  for (const IncludeName& include : includes_in(text)) {
    if (include.name.front() == '/') {
      continue;
    }
    bool found = include.quoted && offer(join_path(folder_of(path), include.name), to);
    for (std::size_t i = 0; i < include_folders_.size() && !found; ++i) {
      found = offer(join_path(include_folders_[i], include.name), to);
    }
  }
}

/// True when there is something at the path, so that the search ends.
bool FileQuestions::offer(const std::string& path, wire::Answers& to) {
  if (looked_at_.source(path) != nullptr) {
    return true;
  }
  if (told_.insert(path).second) {
    wire::Answer answer = answer_one(path);
    if (answer.kind == wire::FileKind::error) {
      return true;  // if NVRTC wants it, it shall ask, and the compile fails
    }
    if (answer.kind == wire::FileKind::file) {
      unread_.push_back({path, answer.bytes});
    }
    to.answers.push_back(std::move(answer));
  }
  return files_.serve(path).kind != FileAnswer::Kind::absent;
}

/// What the file server said of a path it says for ever, so this may come after the answer.
void FileQuestions::note(const std::string& path) {
  if (looked_at_.source(path) != nullptr) {
    return;
  }
  const FileAnswer& found = files_.serve(path);
  switch (found.kind) {
    case FileAnswer::Kind::file:
      looked_at_.add_file(path, found.digest, has_time_macro(found.bytes));
      break;
    case FileAnswer::Kind::folder: looked_at_.add_folder(path); break;
    case FileAnswer::Kind::absent: looked_at_.add_absent(path); break;
    case FileAnswer::Kind::error: looked_at_.add_unreadable(found.message); break;
  }
}

DependencySet FileQuestions::take_dependencies(const wire::Compiled& compiled) {
  for (const std::string& path : compiled.used) {
    note(path);
  }
  return looked_at_.take(compiled.inferred_absent);
}

}  // namespace cukiln
