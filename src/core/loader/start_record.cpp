// SPDX-License-Identifier: Apache-2.0
#include "core/loader/start_record.hpp"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/file_size_limit.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/printable.hpp"
#include "core/base/result.hpp"
#include "core/compile/search_folders.hpp"
#include "core/loader/phase_meter.hpp"
#include "core/store/store_directory.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

namespace {

using std::chrono::microseconds;

constexpr const char* kFolder = "starts";
constexpr std::size_t kMaxRecords = 16;
constexpr std::size_t kMaxBytes = 4096;  // of a record
constexpr std::size_t kMaxText = 160;    // of a text in it
constexpr std::size_t kMaxModules = 256;

/// A text as JSON. Not nlohmann's: its destructor allocates, and ends the host without memory.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text.substr(0, kMaxText))) {
    out.append(c == '"' || c == '\\' ? 1 : 0, '\\').push_back(c);
  }
  return out + '"';
}

std::string field(std::string_view name, Milliseconds time) {
  return fmt::format("\"{}\":{:.3f},", name, time.count());
}

/// The names of records, in the order of time: `0001764500000000-0000004711.json`, microseconds
/// since 1970 and a process. Other files are nobody's business here.
std::vector<std::string> records_in(const std::string& folder) {
  constexpr std::size_t kDigits = 16 + 1 + 10;
  // Not a directory_iterator: it ends the host without memory.
  std::vector<std::string> names = names_in(folder, {});
  std::erase_if(names, [](const std::string& name) {
    return name.size() != kDigits + 5 || !name.ends_with(".json") ||
           name.find_first_not_of("0123456789-") != kDigits;
  });
  std::reverse(names.begin(), names.end());  // the oldest first
  return names;
}

Result<void> write_record(const StoreDirectory& directory, ByteView text) {
  CUKILN_TRY(const std::string folder, directory.folder(kFolder));
  const std::vector<std::string> names = records_in(folder);
  for (std::size_t i = 0; i + kMaxRecords <= names.size(); ++i) {
    ::unlink(join_path(folder, names[i]).c_str());
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string path = join_path(
      folder, fmt::format("{:016}-{:010}.json",
                          std::chrono::duration_cast<microseconds>(now).count(), ::getpid()));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const FileSizeLimitGuard guard;
  return fd && write_all(fd.get(), text) ? Result<void>() : cannot("write", path);
}

}  // namespace

void StartRecorder::add_module(const ModuleReport& report, std::string id) {
  ++counts_[static_cast<std::size_t>(report.outcome)];
  if (modules_.size() >= kMaxModules) {
    return;
  }
  const std::string& reason = report.error        ? report.error->message()
                              : report.not_stored ? report.not_stored->message()
                                                  : report.reason;
  modules_.push_back(
      {std::move(id), report.outcome == Outcome::hit, report.elapsed,
       fmt::format(
           "{{\"name\":{},\"target\":\"{}\",\"outcome\":\"{}\",\"reason\":{},{}{}\"stored\":{}}}",
           json_text(report.name), report.target.name(), name_of(report.outcome), json_text(reason),
           field("milliseconds", report.elapsed), field("load_milliseconds", report.load_time),
           !report.error && !report.not_stored)});
}

void StartRecorder::add(const PreloadReport& report) {
  if (is_written_) {
    return;
  }
  const ForkSafeLock lock(mutex_);
  for (const NamedPhase& phase : kPhases) {
    phases_.*phase.time += report.phases.*phase.time;
  }
  for (const ModuleReport& module : report.modules) {
    add_module(module, module.name + "@" + module.target.name());
  }
}

void StartRecorder::add(const ModuleReport& report) {
  if (is_written_) {
    return;
  }
  std::string id = report.name + "@" + report.target.name();
  const ForkSafeLock lock(mutex_);
  if (std::none_of(modules_.begin(), modules_.end(),
                   [&](const Module& module) { return module.id == id; })) {
    phases_.load += report.load_time;
    (report.outcome == Outcome::hit ? phases_.look_up : phases_.compile) +=
        report.elapsed - report.load_time;
    add_module(report, std::move(id));
  }
}

/// A line; empty if nothing was added. Of the modules it has those that there is place for: first
/// the ones that were not in the store, then the slowest.
std::string StartRecorder::text(const TieredStore& tiers, bool sealed) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line =
      fmt::format("{{\"program\":{},\"process\":{},\"time\":{},\"sealed\":{},{}{}\"phases\":{{",
                  json_text(program_invocation_short_name), ::getpid(),
                  std::chrono::duration_cast<std::chrono::seconds>(now).count(), sealed,
                  field("milliseconds", std::chrono::steady_clock::now() - tiers.opening().began),
                  field("open_ms", tiers.opening().took));
  const ForkSafeLock lock(mutex_);
  if (modules_.empty()) {
    return {};
  }
  for (const NamedPhase& phase : kPhases) {
    line += field(phase.field, phases_.*phase.time);
  }
  line.pop_back();
  const auto count = [&](Outcome outcome) CUKILN_REQUIRES(mutex_) {
    return counts_[static_cast<std::size_t>(outcome)];
  };
  line +=
      fmt::format("}},\"hits\":{},\"compiled\":{},\"failed\":{},\"modules\":[", count(Outcome::hit),
                  count(Outcome::compiled), count(Outcome::failed) + count(Outcome::missing));
  std::stable_sort(modules_.begin(), modules_.end(), [](const Module& a, const Module& b) {
    return a.is_hit != b.is_hit ? b.is_hit : a.elapsed > b.elapsed;
  });
  for (const Module& module : modules_) {
    if (line.size() + module.json.size() + 4 > kMaxBytes) {
      break;
    }
    line += (line.back() == '[' ? "" : ",") + module.json;
  }
  return line + "]}\n";
}

void StartRecorder::write(const TieredStore& tiers, bool sealed) noexcept {
  if (is_written_.exchange(true) || tiers.folder() == nullptr || tiers.read_only()) {
    return;
  }
  static_cast<void>(guarded([&]() -> Result<void> {
    const std::string line = text(tiers, sealed);
    return line.empty() ? Result<void>() : write_record(*tiers.folder(), line);
  }));
}

std::vector<std::string> read_starts(const Store& store) {
  std::vector<std::string> found;
  const StoreDirectory* const directory = TieredStore::of(store).folder();
  const std::string folder = directory != nullptr ? directory->path(kFolder) : std::string();
  if (directory == nullptr || !directory->check_folder(folder)) {
    return found;
  }
  for (const std::string& name : records_in(folder)) {
    const std::string path = join_path(folder, name);
    const auto file = directory->check_file(path) ? read_file(path, kMaxBytes)
                                                  : Result<FileContent>(cannot("read", path));
    if (file) {
      found.emplace_back(file->bytes.view());
    }
  }
  found.erase(found.begin(),
              found.end() - static_cast<std::ptrdiff_t>(std::min(found.size(), kMaxRecords)));
  return found;
}

}  // namespace cukiln
