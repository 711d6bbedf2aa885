// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "cli/messages.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::cli {

/// A bar on the status line, with the time since it began: a compile may take a minute in which
/// nothing else is to be seen. Where stderr is no terminal there is none. Either way an interrupt
/// says how much is in the store before it ends the process.
/// Threads: `update` is safe from any.
class ProgressBar {
 public:
  ProgressBar(Messages& messages, std::size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::size_t done, std::size_t total, const ModuleReport& last);

 private:
  void tick();
  std::string line() const;

  Messages& messages_;
  struct Interrupts;  ///< what an interrupted command says, on an empty line
  std::unique_ptr<Interrupts> interrupts_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t done_ = 0;
  std::size_t total_;
  std::string last_;
  bool ended_ = false;
  std::thread ticker_;
};

}  // namespace cukiln::cli
