// SPDX-License-Identifier: Apache-2.0
#include "core/store/writer_lock.hpp"

#include <unistd.h>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace cukiln {

Result<FileLock> WriterLock::acquire(std::chrono::milliseconds wait) {
  if (read_only_) {
    return make_error(ErrorCode::io, "the store in {} is read-only", directory_.root());
  }
  const std::string lock_file = directory_.path("writer.lock");
  const std::int64_t began = steady_ns();
  auto lock = FileLock::acquire(lock_file, FileLock::Mode::exclusive, wait);
  waits_.add(std::chrono::nanoseconds(steady_ns() - began));
  if (!lock && lock.error().code() == ErrorCode::io &&
      ::access(directory_.root().c_str(), F_OK) != 0) {
    // The whole store was removed while it was open: creates it again.
    CUKILN_TRY(const StoreDirectory again,
               StoreDirectory::prepare(options_.directory,
                                       {options_.system, options_.allow_network_file_system},
                                       *options_.facts));
    lock = FileLock::acquire(again.path("writer.lock"), FileLock::Mode::exclusive, wait);
  }
  if (!lock && lock.error().code() == ErrorCode::timeout) {
    timeouts_.fetch_add(1, std::memory_order_relaxed);
  }
  return lock;
}

}  // namespace cukiln
