// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kBarWidth = 20;
// What ends sooner needs no bar: it would only flicker.
constexpr std::chrono::milliseconds kPatience{150};
constexpr std::chrono::milliseconds kPeriod{250};

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

extern "C" void leave_line_empty(int signal) {
  constexpr std::string_view kErase = "\r\x1b[K";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kErase.data(), kErase.size());
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

struct ProgressBar::Interrupts {
  Interrupts() {
    struct sigaction action = {};
    action.sa_handler = leave_line_empty;
    for (std::size_t i = 0; i < std::size(kEndingSignals); ++i) {
      ::sigaction(kEndingSignals[i], nullptr, &before[i]);
      if (before[i].sa_handler == SIG_DFL) {  // what nohup ignores stays ignored
        ::sigaction(kEndingSignals[i], &action, nullptr);
      }
    }
  }
  ~Interrupts() {
    for (std::size_t i = 0; i < std::size(kEndingSignals); ++i) {
      ::sigaction(kEndingSignals[i], &before[i], nullptr);
    }
  }
  struct sigaction before[std::size(kEndingSignals)] = {};
};

ProgressBar::ProgressBar(Messages& messages, std::size_t total)
    : messages_(messages), total_(total) {
  if (messages_.terminal().is_terminal() && messages_.shows(LogLevel::warn)) {
    interrupts_ = std::make_unique<Interrupts>();
    ticker_ = std::thread([this] { tick(); });
  }
}

ProgressBar::~ProgressBar() {
  if (ticker_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    ticker_.join();
    messages_.set_status({});
  }
}

void ProgressBar::update(std::size_t done, std::size_t total, const std::string& last) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
  last_ = last;
  changed_.notify_all();
}

void ProgressBar::tick() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [this] { return ended_; });
  while (!ended_) {
    messages_.set_status(line());
    changed_.wait_for(lock, kPeriod);
  }
}

std::string ProgressBar::line() const {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  const std::size_t total = std::max<std::size_t>(total_, 1);
  const std::size_t full = kBarWidth * std::min(done_, total) / total;
  const std::string text = fmt::format(
      "[{}{}] {}/{}  {} s  {}", std::string(full, '#'), std::string(kBarWidth - full, '-'), done_,
      total_, std::chrono::duration_cast<std::chrono::seconds>(elapsed).count(), printable(last_));
  return shorten(text, messages_.terminal().width() - 1);
}

}  // namespace cukiln::cli
