// SPDX-License-Identifier: Apache-2.0
#include "compile/local_file_provider.hpp"

#include "base/file.hpp"
#include "compile/include_scanner.hpp"

namespace cukiln {

namespace {

// What one reply carries at most beyond the answer: enough to spare nearly all questions, and
// little enough that the worker is not kept waiting for it.
constexpr std::size_t kMaxOffers = 96;
constexpr std::size_t kMaxOfferedBytes = 1 << 20;

}  // namespace

LocalFileProvider::LocalFileProvider(const CompileRequest& request, const VirtualSource& unit,
                                     FileServer& files)
    : files_(files),
      looked_at_(request, unit),
      include_folders_(include_folders_of(request.options)) {}

/// `#pragma once` goes by device and inode: a header that is reached by two paths (`a/../x.h`, a
/// link) is one header, as it is for nvcc.
std::uint32_t LocalFileProvider::number_of(const FileIdentity& identity) {
  const auto next = static_cast<std::uint32_t>(numbers_.size() + 1);
  return numbers_.try_emplace({identity.device, identity.inode}, next).first->second;
}

/// When a whole folder is absent, the worker need not ask for each name in it: with CUB included,
/// that spares two questions of three.
std::string LocalFileProvider::topmost_absent_folder(const std::string& path) {
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

wire::Answer LocalFileProvider::answer_one(const std::string& path) {
  wire::Answer answer;
  answer.path = path;
  if (const SharedBytes* const source = looked_at_.source(path)) {
    answer.kind = wire::FileKind::file;
    answer.file = number_of({FileIdentity::kMemoryDevice, ~std::hash<std::string>()(path)});
    answer.bytes = *source;
    return answer;
  }
  const FileAnswer& found = files_.serve(path);
  switch (found.kind) {
    case FileAnswer::Kind::file:
      answer.kind = wire::FileKind::file;
      answer.file = number_of(found.identity);
      answer.bytes = found.bytes;
      break;
    case FileAnswer::Kind::folder:
      answer.kind = wire::FileKind::folder;
      answer.file = number_of(found.identity);
      break;
    case FileAnswer::Kind::absent: answer.absent_folder = topmost_absent_folder(path); break;
    case FileAnswer::Kind::error: answer.kind = wire::FileKind::error; break;
  }
  looked_at_.told(answer, found.digest, found.message);
  return answer;
}

wire::Answers LocalFileProvider::answer(const std::string& path) {
  wire::Answers reply;
  reply.answers.push_back(answer_one(path));
  told_.insert(path);
  const wire::Answer& answer = reply.answers.front();
  if (answer.kind == wire::FileKind::error) {  // asked for is looked at
    looked_at_.refuse(files_.serve(path).message);
  }
  if (answer.kind == wire::FileKind::file) {
    unread_.push_back({path, answer.bytes});
  }
  offer_more(reply);
  return reply;
}

void LocalFileProvider::offer_more(wire::Answers& to) {
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

void LocalFileProvider::offer_includes(const std::string& path, ByteView text, wire::Answers& to) {
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
bool LocalFileProvider::offer(const std::string& path, wire::Answers& to) {
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

}  // namespace cukiln
