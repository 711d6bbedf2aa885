// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/base/cancel_flags.hpp"
#include "core/base/file_lock.hpp"
#include "core/store/blob_name.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Lets one thread of all processes that use a store produce a missing blob (single flight). The
/// others wait for its lock file, which the kernel unlocks if the process dies. Threads: safe.
class BlobFlights {
  struct Holders;

 public:
  /// The right to produce one blob. The destructor drops it. May outlive the BlobFlights.
  class Flight {
   public:
    /// Holds no lock.
    Flight() = default;
    Flight(Flight&& other) noexcept = default;
    Flight& operator=(Flight&& other) noexcept;
    ~Flight() { drop(); }

    /// False without a lock, and in a forked child.
    bool exclusive() const noexcept { return lock_.is_at(path_); }
    /// Ends it with the blob stored: those that wait look it up.
    void finish() noexcept;
    /// Ends it without: those that wait produce the blob themselves, concurrently, so that what
    /// fails in each process does not fail in one after the other.
    void drop() noexcept;

   private:
    friend class BlobFlights;
    void forget_thread() noexcept;

    FileLock lock_;
    std::string path_;
    std::shared_ptr<Holders> holders_;
    std::thread::id thread_;
  };

  struct Wait {
    std::string lock_folder;          ///< empty: there is no lock
    std::chrono::milliseconds limit;  ///< of a wait, and for the age of a lock that is waited for
    CancelFlags cancelled;
  };
  struct Outcome {
    bool stored = false;  ///< `is_stored` said so
    Flight flight;        ///< if it is not stored
    bool waited = false;
    std::string reason;  ///< why the flight is not exclusive
  };

  BlobFlights();

  /// Takes the lock, or waits until it is released and `is_stored` finds the blob. Without a lock
  /// that works, and after `limit`, the caller gets a flight that is not exclusive. A thread that
  /// has a flight never waits: it could wait for itself, or for a thread that waits for it. Errors:
  /// timeout (cancelled).
  Result<Outcome> take(const BlobName& name, const Wait& wait,
                       const std::function<bool()>& is_stored);

 private:
  bool this_thread_has_flight() const;
  void start(Outcome& outcome, FileLock lock, const std::string& path);

  const std::shared_ptr<Holders> holders_;
};

}  // namespace cukiln
