// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "cli/messages.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::cli {

/// A progress bar on the status line, with the elapsed time: a compile may take a minute without
/// any other output. There is no bar if stderr is not a terminal. While a ProgressBar lives,
/// SIGINT, SIGTERM and SIGHUP print how many modules are in the store before they end the process.
/// At most one may live at a time. `update` may be called from any thread.
class ProgressBar {
 public:
  ProgressBar(Messages& messages, std::size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::size_t done, std::size_t total, const ModuleReport& last);

 private:
  /// Redraws the bar until the destructor ends it; runs in `ticker_`.
  void tick();
  std::string line() const CUKILN_REQUIRES(mutex_);

  Messages& messages_;
  struct Interrupts;  ///< installs the signal handlers, and restores the previous ones
  std::unique_ptr<Interrupts> interrupts_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t done_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::size_t total_ CUKILN_GUARDED_BY(mutex_);
  std::string last_ CUKILN_GUARDED_BY(mutex_);  // the module that ended last
  bool ended_ CUKILN_GUARDED_BY(mutex_) = false;
  std::thread ticker_;
};

}  // namespace cukiln::cli
