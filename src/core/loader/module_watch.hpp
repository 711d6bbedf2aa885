// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/folder_watch.hpp"
#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"
#include "core/loader/loader_impl.hpp"

namespace cukiln {

/// The thread of a Watch: compiles the loaded modules again whose files were edited, and exchanges
/// their functions. Its destructor cancels a compile and joins the thread.
class ModuleWatch {
 public:
  ModuleWatch(KernelLoader::Impl& loader, const WatchOptions& options);
  ~ModuleWatch();
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;

  /// Starts the thread. Called once. Errors: internal (there is none).
  Result<void> start();

 private:
  using Watched = LoadedModules::Watched;
  struct Files {
    std::vector<std::string> paths;
    std::uint32_t retries = 0;  ///< of an error that may pass
  };

  void run() noexcept;
  void check_modules();
  void wait();
  void check(const Watched& module, Files& files);
  Result<bool> reload(const Watched& module, Files& files, Event& event);
  Result<void> check_allowed(bool is_new);
  bool watch_files(const Watched& module, const ModuleRequest& request, const DependencySet& set,
                   Files& files);

  KernelLoader::Impl& loader_;
  const WatchOptions options_;
  FolderWatch folders_{{}};
  const UniqueFd wake_;
  std::atomic<bool> stopped_{false};
  std::map<std::uint64_t, Files> files_;  // by the module's number
  FolderWatch::Subjects changed_, retries_;
  std::chrono::steady_clock::time_point next_poll_;
  std::thread thread_;
};

/// What a loader and its Watch share: each may end the thread.
struct WatchSlot {
  Mutex mutex;
  std::unique_ptr<ProcessLocal<ModuleWatch>> running CUKILN_GUARDED_BY(mutex);

  /// Errors: as KernelLoader::watch.
  static Result<Watch> start(const std::shared_ptr<WatchSlot>& self, KernelLoader::Impl& loader,
                             const WatchOptions& options);
  void end();
};

}  // namespace cukiln
