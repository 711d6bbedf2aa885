// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/messages.hpp"

namespace cukiln::cli {

/// A bar on the status line, with the time since it began: a compile may take a minute in which
/// nothing else is to be seen. Nothing at all where stderr is no terminal.
/// Threads: `update` is safe from any.
class ProgressBar {
 public:
  ProgressBar(Messages& messages, std::size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::size_t done, std::size_t total, const std::string& last);

 private:
  void tick();
  std::string line() const;

  Messages& messages_;
  struct Interrupts;  ///< an interrupted bar leaves its line empty for the shell's prompt
  std::unique_ptr<Interrupts> interrupts_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t done_ = 0;
  std::size_t total_;
  std::string last_;
  bool ended_ = false;
  std::thread ticker_;
};

}  // namespace cukiln::cli
