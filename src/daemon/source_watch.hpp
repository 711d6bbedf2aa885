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

/// Compiles ahead: watches the files of what was compiled here lately, and when somebody saves one
/// has the modules that need it compiled before they are asked for. Only for a daemon that is its
/// clients' own user, because it opens their files. Nothing is right because of it: whoever uses an
/// entry looks at its own files all the same.
/// It has a thread, so that a slow file system is no concern of the daemon's loop.
class SourceWatch {
 public:
  struct Options {
    std::size_t max_modules = 64;                  ///< the one noted longest ago goes first
    std::uint64_t max_text_bytes = 16ull << 20;    ///< of their sources
    std::chrono::milliseconds quiet{200};          ///< a change is acted on when nothing follows it
    std::chrono::milliseconds not_later{2000};     ///< or after so long
    std::chrono::milliseconds look_every{60'000};  ///< for what the kernel does not tell
    FolderWatch::Options folders;
    Logger log;
  };
  using Order = std::shared_ptr<const wire::CompileOrder>;
  using Where = std::shared_ptr<const wire::SourceRoots>;
  /// Called in the watch's thread: `order` has today's texts.
  using Compile = std::function<void(Order order, Where places)>;

  SourceWatch(Options options, TieredStore& store, Compile compile);
  ~SourceWatch();

  /// The order was compiled, with success or without, from files in these places that had this
  /// content. Any thread.
  void note(Order order, Where places, std::string set_canonical);

  FolderWatch::Stats stats() const noexcept;

 private:
  struct Module {
    FolderWatch::Subject number = 0;
    ContentHash identity;
    Order order;
    Where places;
    std::vector<std::string> looked_at;  ///< virtual paths: what it depends on besides
    std::uint64_t text_bytes = 0;
  };
  using Modules = std::list<Module>;
  using Times = std::chrono::steady_clock;

  void run();
  void take_note(Order order, Where places, const std::string& set_canonical);
  void forget(Modules::iterator module);
  void watch(const Module& module, const FileServer& files);
  static void depend(Module& module, const DependencySet& set);
  /// Compiles the module if nothing in the store holds for its files any more.
  void look_at(Module& module);
  void note_stats();

  const Options options_;
  TieredStore& store_;
  const Compile compile_;
  StatCache stats_;
  TaskQueue tasks_;
  bool ending_ = false;  // the thread's, as all below
  FolderWatch folders_;
  Modules modules_;  // the one noted last is first
  std::unordered_map<FolderWatch::Subject, Modules::iterator> by_number_;
  FolderWatch::Subject last_number_ = 0;
  std::uint64_t text_bytes_ = 0;
  FolderWatch::Subjects changed_;
  Times::time_point quiet_at_{}, act_at_{};
  std::atomic<std::uint64_t> seen_folders_{0}, seen_events_{0}, seen_overflows_{0},
      seen_limited_{0};
  std::thread thread_;
};

}  // namespace cukiln::daemon
