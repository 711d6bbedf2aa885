// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <charconv>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kBarWidth = 20;
// A bar for work that ends sooner would only flicker.
constexpr std::chrono::milliseconds kDelay{150};
constexpr std::chrono::milliseconds kRefreshPeriod{250};

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// What the signal handler reads.
std::atomic<bool> g_has_bar{false};
std::atomic<bool> g_is_alive{false};
std::atomic<std::size_t> g_stored{0};
std::atomic<std::size_t> g_total{0};

/// A text that a signal handler may build and write: it allocates nothing.
class SignalText {
 public:
  void add(std::string_view text) noexcept {
    const std::size_t count = std::min(text.size(), sizeof bytes_ - size_);
    std::copy_n(text.begin(), count, bytes_ + size_);
    size_ += count;
  }
  void add(std::size_t number) noexcept {
    char digits[std::numeric_limits<std::size_t>::digits10 + 1];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
    add(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  void write() const noexcept {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, bytes_, size_);
  }

 private:
  static constexpr std::size_t kMaxBytes = 160;
  char bytes_[kMaxBytes] = {};
  std::size_t size_ = 0;
};

extern "C" void print_stored_and_end(int signal) {
  SignalText text;
  text.add(g_has_bar ? "\r\x1b[K" : "");
  text.add(g_stored);
  text.add(" of ");
  text.add(g_total);
  text.add(" modules are in the store; run the same command again to continue\n");
  text.write();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

struct ProgressBar::Interrupts {
  Interrupts() {
    struct sigaction action = {};
    action.sa_handler = print_stored_and_end;
    for (std::size_t i = 0; i < std::size(kEndingSignals); ++i) {
      ::sigaction(kEndingSignals[i], nullptr, &before[i]);
      if (before[i].sa_handler == SIG_DFL) {  // a signal that nohup ignores stays ignored
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
  [[maybe_unused]] const bool is_second = g_is_alive.exchange(true);
  assert(!is_second);
  g_has_bar = messages_.terminal().can_redraw() && messages_.shows(LogLevel::warn);
  g_stored = 0;
  g_total = total;
  if (messages_.shows(LogLevel::warn)) {
    interrupts_ = std::make_unique<Interrupts>();
  }
  if (g_has_bar) {
    ticker_ = std::thread([this] { tick(); });
  }
}

ProgressBar::~ProgressBar() {
  if (ticker_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    ticker_.join();
    messages_.set_status({});
  }
  g_is_alive = false;
}

void ProgressBar::update(std::size_t done, std::size_t total, const ModuleReport& last) {
  const MutexLock lock(mutex_);
  g_stored += !last.error && !last.not_stored ? 1 : 0;
  g_total = total;
  done_ = done;
  total_ = total;
  last_ = last.name;
  changed_.notify_all();
}

void ProgressBar::tick() {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, kDelay, [this]() CUKILN_REQUIRES(mutex_) { return ended_; });
  while (!ended_) {
    messages_.set_status(line());
    changed_.wait_until(lock, std::chrono::steady_clock::now() + kRefreshPeriod);
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
