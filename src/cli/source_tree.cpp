// SPDX-License-Identifier: Apache-2.0
#include "cli/source_tree.hpp"

#include <filesystem>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/std_headers.hpp"
#include "core/loader/make_entry.hpp"

namespace cukiln::cli {

namespace {

namespace fs = std::filesystem;

/// Returns what is behind a virtual root: `a/b.cuh` of `/cukiln/inc/0/a/b.cuh`. Empty for a path
/// below none.
std::string below_root(const std::string& path) {
  for (const std::string root : {kSourceRoot, kToolkitRoot, kWorkRoot, kIncludeRoot}) {
    if (!path.starts_with(root)) {
      continue;
    }
    std::size_t slash = path.find('/', root.size());  // past `.1` of a further source folder
    if (root == kIncludeRoot && slash == root.size()) {
      slash = path.find('/', slash + 1);
    }
    return slash == std::string::npos ? std::string() : path.substr(slash + 1);
  }
  return {};
}

std::string short_text_of(const ContentHash& digest) { return digest.hex().substr(0, 12); }

}  // namespace

std::vector<VirtualSource> find_headers(const StoreEntry& entry,
                                        const std::vector<std::string>& folders) {
  std::vector<VirtualSource> headers;
  for (const Observation& seen : entry.dependencies.observations) {
    const std::string below =
        seen.kind == Observation::Kind::file ? below_root(seen.path) : std::string();
    for (std::size_t i = 0; i < folders.size() && !below.empty(); ++i) {
      auto file = read_file(join_path(folders[i], below));
      if (file && hash_of(file->bytes) == seen.hash) {
        headers.emplace_back(seen.path, std::move(file->bytes), seen.hash);
        break;
      }
    }
  }
  return headers;
}

Result<void> SourceTree::add(const StoreEntry& entry, const std::vector<std::string>& toolkit) {
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  // A program's relative names are below its folder in line tables.
  const auto named = [&](const std::string& path) {
    return fields.program && !path.starts_with('/')
               ? join_path(fields.program->working_folder, path)
               : path;
  };
  const std::vector<ByteView> texts = source_texts_in(entry.source_text, fields.sources);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const RequestFields::Source& source = fields.sources[i];
    const RecordedFile recorded{entry, toolkit, named(source.path), source.digest};
    CUKILN_CHECK(hash_of(texts[i]) == source.digest ? lay(recorded, texts[i]) : find(recorded));
  }
  for (const RequestFields::Source& header : fields.headers) {  // given as texts
    CUKILN_CHECK(find({entry, toolkit, named(header.path), header.digest}));
  }
  for (const Observation& seen : entry.dependencies.observations) {
    if (seen.kind != Observation::Kind::file) {
      continue;
    }
    const RecordedFile recorded{entry, toolkit, seen.path, seen.hash};
    const auto std_text =
        is_std_header(seen.path) ? std_header(below_root(seen.path)) : std::nullopt;
    CUKILN_CHECK(std_text && std_text->digest == seen.hash ? lay(recorded, std_text->text)
                                                           : find(recorded));
  }
  return {};
}

std::vector<std::string> SourceTree::candidates(const RecordedFile& recorded) const {
  const std::string& path = recorded.path;
  const std::string below = below_root(path);
  if (below.empty() && !path.empty() && path.front() == '/') {
    return {path};  // of a program whose line tables have real names
  }
  std::vector<std::string> all;
  for (const std::vector<std::string>* folders : {&search_, &recorded.toolkit}) {
    for (const std::string& folder : *folders) {
      all.push_back(join_path(folder, below.empty() ? path : below));
    }
  }
  return all;
}

Result<void> SourceTree::find(const RecordedFile& recorded) {
  std::string changed;
  for (const std::string& path : candidates(recorded)) {
    const auto file = read_file(path);
    if (!file) {
      continue;
    }
    const ContentHash digest = hash_of(file->bytes);
    if (digest == recorded.digest) {
      return lay(recorded, file->bytes.view());
    }
    if (changed.empty()) {
      changed = fmt::format("{} has changed: its digest is {}, and {} was compiled", path,
                            short_text_of(digest), short_text_of(recorded.digest));
    }
  }
  miss(recorded, changed.empty() ? "not found in any of the folders" : std::move(changed));
  return {};
}

Result<void> SourceTree::lay(const RecordedFile& recorded, ByteView bytes) {
  const std::string below =
      fs::path(recorded.path).lexically_normal().relative_path().generic_string();
  if (below.empty() || *fs::path(below).begin() == "..") {
    miss(recorded, "its path leads out of the folder");
    return {};
  }
  const auto earlier = laid_.find(below);
  if (earlier != laid_.end() && earlier->second == recorded.digest) {
    return {};
  }
  const std::string target = join_path(folder_, below);
  if (const auto there = read_file(target); there) {
    if (there->bytes.view() != bytes) {
      miss(recorded, earlier != laid_.end()
                         ? "another of these entries has other text at this path; give its key, "
                           "and a folder of its own"
                         : target + " is there with other text; choose another folder");
      return {};
    }
  } else {
    std::error_code failed;
    fs::create_directories(fs::path(target).parent_path(), failed);
    if (failed) {
      return make_error(ErrorCode::io, "cannot make the folder {}: {}",
                        fs::path(target).parent_path().string(), failed.message());
    }
    if (there.error().code() != ErrorCode::not_found) {
      return there.error();
    }
    CUKILN_CHECK(write_output(target, bytes));
  }
  laid_.insert_or_assign(below, recorded.digest);
  return {};
}

void SourceTree::miss(const RecordedFile& recorded, std::string reason) {
  missing_.push_back({recorded.entry.labels.name, recorded.path, std::move(reason)});
}

}  // namespace cukiln::cli
