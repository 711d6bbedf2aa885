// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// What other machines compiled. Asked when nothing on this machine has it, and never trusted to
/// answer: every call is bounded, and whatever goes wrong is "not there", counted where it is known
/// why. Threads: every member is safe from any thread.
class RemoteTier {
 public:
  virtual ~RemoteTier() = default;

  enum class Freshness {
    usual,  ///< what was not there a moment ago is not asked for again
    now     ///< somebody may be putting it there
  };
  /// The entry whose set holds, as `check` says: verified in full, its origin `remote`. Reads at
  /// most 64 KiB of sets, and the entries that may hold, usually one.
  virtual std::optional<StoreEntry> find(ByteView request_canonical, SetCheck& check,
                                         Freshness freshness) = 0;

  /// Waits while another machine compiles this request, for `limit` at most, and asks `found` every
  /// now and then. True: `found` said yes. False: it is for this machine to compile it now; others
  /// wait for it until `end_turn`, or until what was `put` has arrived.
  virtual bool found_while_waiting(ByteView request_canonical, std::chrono::milliseconds limit,
                                   const std::atomic<bool>& cancelled,
                                   const std::function<bool()>& found) = 0;
  virtual void end_turn(ByteView request_canonical) = 0;

  /// Offers an entry to the fleet. Returns at once; nothing where this machine may only read.
  virtual void put(const StoreEntry& entry) = 0;
};

}  // namespace cukiln
