// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/host.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/file_size_limit.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/printable.hpp"
#include "core/base/result.hpp"
#include "core/loader/loader_services.hpp"
#include "core/loader/module_request.hpp"

#include <cukiln/settings.hpp>

namespace cukiln::dropin {

namespace {

/// Messages of the store go to stderr: a host that was not written for cukiln has no other place.
void print(LogLevel level, std::string_view message) {
  const char* const word = level == LogLevel::error  ? "error"
                           : level == LogLevel::warn ? "warning"
                                                     : "note";
  const std::string line = fmt::format("cukiln: {}: {}\n", word, message);
  static_cast<void>(write_all(STDERR_FILENO, line));
}

}  // namespace

DropinStore::DropinStore(std::string nvrtc, const char* report)
    : nvrtc_(std::move(nvrtc)), report_(report != nullptr ? report : "") {}

Result<std::shared_ptr<DropinStore::Opened>> DropinStore::find() {
  const ForkSafeLock lock(mutex_);
  if (is_closed_) {
    return Error(ErrorCode::io, "the process is ending");
  }
  return opened_;
}

Result<std::shared_ptr<DropinStore::Opened>> DropinStore::open() {
  CUKILN_TRY(std::shared_ptr<Opened> known, find());
  if (known != nullptr) {
    return known;
  }
  const MutexLock opening(opening_.get());
  CUKILN_TRY(known, find());
  if (known != nullptr) {
    return known;
  }
  CUKILN_TRY(Settings settings, Settings::load());
  if (!nvrtc_.empty()) {
    settings.loader.nvrtc_library = nvrtc_;
  }
  settings.loader.log = [highest = settings.log_level](LogLevel level, std::string_view message) {
    if (level <= highest) {
      print(level, message);
    }
  };
  settings.store.log = settings.loader.log;
  CUKILN_TRY(Store store, Store::open(settings.store));
  CUKILN_TRY(KernelLoader loader, KernelLoader::create(store, settings.loader));
  auto opened = std::make_shared<Opened>(Opened{std::move(store), std::move(loader)});
  const ForkSafeLock lock(mutex_);
  if (!is_closed_) {
    opened_ = opened;
  }
  return opened;
}

void DropinStore::report(std::string_view what, std::int64_t microseconds, const void* caller,
                         std::string_view why) {
  if (report_.empty()) {
    return;
  }
  // Opened for each line: the host may close a descriptor that stays open, and get its number.
  const UniqueFd file(::open(report_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  const std::string_view first_line = why.substr(0, why.find('\n'));
  Dl_info library{};
  const bool is_known = ::dladdr(caller, &library) != 0 && library.dli_fname != nullptr;
  const std::string line =
      fmt::format("{} {} {}\t{}\n", what, microseconds,
                  is_known ? printable(library.dli_fname) : std::string(), first_line);
  const FileSizeLimitGuard guard;
  static_cast<void>(!::write(file.get(), line.data(), line.size()));
}

void DropinStore::close() noexcept {
  std::shared_ptr<Opened> opened;  // destroyed after the lock is released
  const ForkSafeLock lock(mutex_);
  is_closed_ = true;
  opened.swap(opened_);
}

// The path is absolute, since the process may change its folder.
Host::Host(const RealNvrtc& real, const char* report)
    : DropinStore(absolute_path(real.library), report), real_(real) {}

int Host::default_capability() const noexcept {
  constexpr int kFirstWithTuring = 13;  // NVRTC 12 compiles for sm_52 if nothing is said
  const auto version = real().version;
  int major = 0;
  int minor = 0;
  if (version == nullptr || version(&major, &minor) != kSuccess) {
    return 0;
  }
  return major >= kFirstWithTuring ? 75 : 52;
}

Result<ProgramResult> Host::compile(const ProgramSpec& spec, NvrtcFailure& failure) {
  CUKILN_TRY(const auto opened, open());
  return compile_program(opened->loader, spec, failure);
}

std::optional<SharedBytes> Host::ptx_of(const PtxSource& source) {
  const auto opened = find();
  SharedBytes ptx = source.text;
  if (opened && *opened != nullptr) {
    KernelLoader& loader = (*opened)->loader;
    for (const StoreEntry& entry : source.entries) {
      LoaderServices(loader).put(entry);
    }
    if (ptx.empty()) {
      if (auto stored = loader.cubin(source.key())) {
        ptx = SharedBytes(*std::move(stored));
      }
    }
  }
  return ptx.empty() || may_depend_on_folders(ptx.view(), {}) ? std::nullopt : std::optional(ptx);
}

}  // namespace cukiln::dropin
