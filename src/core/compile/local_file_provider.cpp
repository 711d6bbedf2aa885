// SPDX-License-Identifier: Apache-2.0
#include "core/compile/local_file_provider.hpp"

#include "core/base/file.hpp"
#include "core/compile/include_scanner.hpp"

namespace cukiln {

namespace {

// Limits on the answers that are sent ahead in one reply: enough to save nearly all questions, and
// little enough that the worker does not wait for them.
constexpr std::size_t kMaxAnswers = 96;
constexpr std::size_t kMaxAheadBytes = 1 << 20;

}  // namespace

LocalFileProvider::LocalFileProvider(const CompileRequest& request, const VirtualSource& unit,
                                     FileServer& files)
    : files_(files),
      recorder_(request, unit),
      include_folders_(include_folders_of(request.options)) {
  const bool is_relative = request.program && !unit.path.starts_with('/');
  add_includes(is_relative ? join_path(request.program->working_folder, unit.path) : unit.path,
               unit.text);
}

/// Returns one number for each file on disk: `#pragma once` compares device and inode, so a header
/// that is reached by two paths (`a/../x.h`, a link) must be one header, as it is for nvcc.
std::uint32_t LocalFileProvider::number_of(const FileIdentity& identity) {
  const auto next = static_cast<std::uint32_t>(numbers_.size() + 1);
  return numbers_.try_emplace({identity.device, identity.inode}, next).first->second;
}

/// Returns the topmost folder above an absent path that is absent too; empty if its folder exists.
/// The worker then asks for nothing below it: with CUB included, that saves two questions of three.
std::string LocalFileProvider::topmost_absent_folder(const std::string& path) {
  std::size_t first = 1;  // where the name of the topmost candidate begins
  if (is_within(path, kIncludeRoot)) {
    first = std::string_view(kIncludeRoot).size() + 1;
  } else if (is_within(path, kToolkitRoot)) {
    first = std::string_view(kToolkitRoot).size();
  } else if (is_within(path, "/cukiln")) {
    return {};  // the folder of a source need not exist on disk
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
  if (const SharedBytes* const source = recorder_.source(path)) {
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
  recorder_.record_sent(answer, found.digest, found.message);
  return answer;
}

wire::Answers LocalFileProvider::answer(const std::string& path) {
  wire::Answers reply;
  reply.answers.push_back(answer_one(path));
  sent_.insert(path);
  const wire::Answer& answer = reply.answers.front();
  if (answer.kind == wire::FileKind::error) {  // a path that is asked for is accessed
    recorder_.refuse(files_.serve(path).message);
  }
  if (answer.kind == wire::FileKind::file) {
    add_includes(path, answer.bytes);
  }
  send_ahead(reply);
  return reply;
}

/// Answers that are not sent ahead cost a question each: of an absent path as much as of a header.
void LocalFileProvider::send_ahead(wire::Answers& to) {
  std::size_t bytes = 0;
  while (!includes_.empty() && to.answers.size() < kMaxAnswers && bytes < kMaxAheadBytes) {
    const Include include = std::move(includes_.front());
    includes_.pop_front();
    std::size_t counted = to.answers.size();
    bool found = include.quoted && send_file_ahead(join_path(include.folder, include.name), to);
    for (std::size_t i = 0; i < include_folders_.size() && !found; ++i) {
      found = send_file_ahead(join_path(include_folders_[i], include.name), to);
    }
    for (; counted < to.answers.size(); ++counted) {
      bytes += to.answers[counted].bytes.size();
    }
  }
}

void LocalFileProvider::add_includes(const std::string& path, ByteView text) {
  for (const IncludeName& include : includes_in(text)) {
    if (include.name.front() != '/') {
      includes_.push_back({folder_of(path), std::string(include.name), include.quoted});
    }
  }
}

/// True if the path exists, which ends the search of the include folders.
bool LocalFileProvider::send_file_ahead(const std::string& path, wire::Answers& to) {
  if (recorder_.source(path) != nullptr) {
    return true;
  }
  if (sent_.insert(path).second) {
    wire::Answer answer = answer_one(path);
    if (answer.kind == wire::FileKind::error) {
      return true;  // not sent ahead: the compile fails only if NVRTC asks for it
    }
    if (answer.kind == wire::FileKind::file) {
      add_includes(path, answer.bytes);
    }
    to.answers.push_back(std::move(answer));
  }
  return files_.serve(path).kind != FileAnswer::Kind::absent;
}

}  // namespace cukiln
