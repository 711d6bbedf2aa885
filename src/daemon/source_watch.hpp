// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/hasher.hpp"
#include "base/logger.hpp"
#include "daemon/folder_watch.hpp"
#include "daemon/task_queue.hpp"
#include "key/dependency_set.hpp"
#include "key/file_server.hpp"
#include "key/stat_cache.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/digest.hpp>

namespace cukiln::daemon {

/// Watches the files of recently compiled modules, and recompiles a module when one of them
/// changes, before a client requests it. Optimisation only. Correctness never depends on it:
/// clients re-validate their own files on every hit. Works in a thread of its own, because file
/// systems may be slow.
class SourceWatch {
 public:
  struct Options {
    std::size_t max_modules = 64;                ///< the oldest is dropped for a new one
    std::uint64_t max_text_bytes = 16ull << 20;  ///< of all their sources
    std::chrono::milliseconds quiet_time{200};   ///< recompiles when no change follows for so long,
    std::chrono::milliseconds max_delay{2000};   ///< or at the latest so long after the first one
    std::chrono::milliseconds check_interval{60'000};  ///< of FolderWatch::check_all
    FolderWatch::Options folders;
    Logger log;
  };
  using Order = std::shared_ptr<const wire::CompileOrder>;
  using Roots = std::shared_ptr<const wire::SourceRoots>;
  /// Recompiles. Called in the watch's thread; `order` has the current source texts.
  using Compile = std::function<void(Order order, Roots source_roots)>;

  SourceWatch(Options options, TieredStore& store, Compile compile);
  ~SourceWatch();

  /// Watches the files of an order that was compiled, successfully or not, with this dependency set
  /// (empty if it is not known). Threads: any.
  void add(Order order, Roots source_roots, std::string set_canonical);

  FolderWatch::Stats stats() const noexcept;

 private:
  struct Module {
    FolderWatch::Subject number = 0;
    ContentHash identity;
    Order order;
    Roots source_roots;
    std::vector<std::string> dependencies;  ///< virtual paths, without the sources
    std::uint64_t text_bytes = 0;
  };
  using Modules = std::list<Module>;
  using Clock = std::chrono::steady_clock;

  void run();
  void add_module(Order order, Roots source_roots, const std::string& set_canonical);
  void forget(Modules::iterator module);
  void watch(const Module& module, const FileServer& files);
  static void depend(Module& module, const DependencySet& set);
  /// Recompiles the module if no dependency set in the store holds for its files.
  void recompile_if_stale(Module& module);
  void publish_stats();

  const Options options_;
  TieredStore& store_;
  const Compile compile_;
  StatCache stats_;
  TaskQueue tasks_;
  // Used by the thread only, except for the atomics.
  bool ending_ = false;
  FolderWatch folders_;
  Modules modules_;  // the newest first
  std::unordered_map<FolderWatch::Subject, Modules::iterator> by_number_;
  FolderWatch::Subject last_number_ = 0;
  std::uint64_t text_bytes_ = 0;
  FolderWatch::Subjects changed_;
  Clock::time_point quiet_at_{}, latest_at_{};
  std::atomic<std::uint64_t> published_folders_{0}, published_events_{0}, published_overflows_{0},
      published_limited_{0};
  std::thread thread_;
};

}  // namespace cukiln::daemon
