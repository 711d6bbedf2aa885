// SPDX-License-Identifier: Apache-2.0
#include "loader/recorder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/fork_gate.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "key/nvcc_flags.hpp"
#include "loader/module_request.hpp"

namespace cukiln {

namespace {

using Json = nlohmann::json;

/// Normalises a path, so that `k.cu` and `./k.cu` are recorded once.
std::string recorded_path(const std::string& path) {
  return std::filesystem::path(absolute_path(path)).lexically_normal().string();
}

Json json_of(const Source& source) {
  return source.in_memory ? Json{{"path", source.path}, {"text", source.content()}}
                          : Json{{"path", recorded_path(source.path)}};
}

/// Returns the line with paths made absolute; empty if the flags are wrong, which the compile
/// reports.
std::string line_of(const ModuleSpec& spec, Target target) {
  const auto flags = translate_flags(spec.flags);
  if (!flags || spec.sources.empty()) {
    return {};
  }
  Json line{
      {"name", spec.name.empty() ? std::filesystem::path(spec.sources.front().path).stem().string()
                                 : spec.name},
      {"define", spec.define},
      {"flags", flags->arguments},
      {"names", canonical_names(spec.names, flags->standard)},
      {"target", target.name()},
      {"sources", Json::array()},
      {"headers", Json::array()},
      {"include", Json::array()}};
  if (!flags->standard.empty()) {
    line["flags"].push_back("-std=" + flags->standard);
  }
  for (const Source& source : spec.sources) {
    line["sources"].push_back(json_of(source));
  }
  for (const Source& header : spec.headers) {
    line["headers"].push_back(json_of(header));
  }
  for (const std::string& folder : spec.include) {
    line["include"].push_back(recorded_path(folder));
  }
  for (const std::string& folder : flags->include) {
    line["include"].push_back(recorded_path(absolute_path(folder, spec.working_folder)));
  }
  if (flags->relative_pre_include) {
    line["working_folder"] = recorded_path(working_folder_of(spec));
  }
  for (const Source& header : spec.named_headers) {
    line["named_headers"][header.path] = header.content();
  }
  if (!spec.std_shims) {
    line["std_shims"] = false;
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void Recorder::note(const ModuleSpec& spec, Target target) {
  if (path_.empty()) {
    return;
  }
  const std::string line = line_of(spec, target);
  if (const std::string error = append(line); !error.empty()) {
    log_.warn("requests cannot be recorded in {}: {}", path_, error);
  }
}

/// Returns the reason of a failure the first time, else an empty string.
std::string Recorder::append(const std::string& line) {
  const ForkSafeLock lock(mutex_);
  if (line.empty() || failed_ || !known_.insert(hash_of(line)).second) {
    return {};
  }
  // Opened each time, because a host may close descriptors that it does not know. A write with
  // O_APPEND is atomic.
  const UniqueFd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (!file || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    failed_ = true;
    return errno_text(errno);
  }
  return {};
}

}  // namespace cukiln
