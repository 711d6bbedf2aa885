// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file.hpp"

namespace cukiln::daemon {

/// What other threads leave for the loop to do. Threads: `post` is safe.
class Mailbox {
 public:
  Mailbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void post(std::function<void()> letter) {
    {
      const std::lock_guard lock(mutex_);
      letters_.push_back(std::move(letter));
    }
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  /// Runs what was posted; the loop's thread only.
  void open() {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    std::vector<std::function<void()>> letters;
    {
      const std::lock_guard lock(mutex_);
      letters.swap(letters_);
    }
    for (const std::function<void()>& letter : letters) {
      letter();
    }
  }

  /// Readable when there is something.
  int fd() const noexcept { return wake_.get(); }

 private:
  const UniqueFd wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> letters_;
};

}  // namespace cukiln::daemon
