// SPDX-License-Identifier: Apache-2.0
// The preceding kernel of a programmatic launch.
#include <csignal>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "emulator/cta.hpp"

namespace cukiln::emulator {
namespace {

std::atomic<const Grid*> protecting{nullptr};

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void on_access(int signal, siginfo_t* info, void*) {
  const Grid* const grid = protecting;
  for (std::size_t i = 0; grid != nullptr && i < grid->preceding.size(); ++i) {
    if (grid->preceding[i]->contains(info->si_addr)) {
      fault("global memory at %p is accessed before the preceding kernel has ended", info->si_addr);
    }
  }
  if (self != nullptr) {
    fault("global memory at %p is accessed, behind an argument or of none", info->si_addr);
  }
  std::signal(signal, SIG_DFL);  // returns to the access, which then ends the process
}

bool has_ended(const void* word, u64, std::memory_order order) {
  return static_cast<const std::atomic<u32>*>(word)->load(order) != 0;
}

}  // namespace

Pages::Pages(const void* from, std::size_t bytes) {
  constexpr std::size_t kAlignment = 16;  // of what TMA and 16-byte loads read
  const std::size_t page = page_bytes();
  const std::size_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  bytes_ = (aligned + page - 1) / page * page;
  // And a page that no access is allowed to.
  memory_ = mmap(nullptr, bytes_ + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) {
    fault("mmap of %zu bytes failed", bytes_ + page);
  }
  allow(true);
  data_ = static_cast<u8*>(memory_) + (bytes_ - aligned);
  if (bytes != 0) {
    std::memcpy(data_, from, bytes);
  }
}

Pages::~Pages() { munmap(memory_, bytes_ + page_bytes()); }

bool Pages::contains(const void* address) const {
  return address >= memory_ && address < static_cast<const u8*>(memory_) + bytes_;
}

void Pages::allow(bool access) const {
  if (mprotect(memory_, bytes_, access ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    fault("mprotect of %zu bytes failed", bytes_);
  }
}

void begin_preceding(Cluster& cluster, const Grid* grid) {
  protecting = grid;
  if (grid == nullptr) {
    cluster.preceding_ended.store(1, std::memory_order_relaxed);
    return;
  }
  struct sigaction action {};
  action.sa_sigaction = on_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  for (const Pages* pages : grid->preceding) {
    pages->allow(false);
  }
}

void end_preceding(Cluster& cluster) {
  const Grid* const grid = protecting.exchange(nullptr);
  if (grid == nullptr) {
    return;
  }
  for (const Pages* pages : grid->preceding) {
    pages->allow(true);
  }
  cluster.preceding_ended.store(1, std::memory_order_release);
  futex_wake_all(&cluster.preceding_ended);
}

void wait_for_preceding() {
  const auto* const ended = &self->cta->cluster->preceding_ended;
  const bool fenced = self->after_fence;  // tensor memory is not ordered by it
  wait_for(ended, ended, has_ended, 0);
  self->after_fence = fenced;
}

}  // namespace cukiln::emulator

namespace cukiln {

using namespace emulator;

void griddepcontrol_wait() {
  wait_for_preceding();
  self->waited = true;
}

void griddepcontrol_launch_dependents() {
  if (!self->waited) {
    fault("dependents are launched before griddepcontrol_wait");
  }
  if (self->cta->has_tmem && !self->cta->allocated) {
    fault("dependents, which may take tensor memory, are launched before this CTA has its own");
  }
  self->cta->launched_dependents.store(true, std::memory_order_relaxed);
}

}  // namespace cukiln
