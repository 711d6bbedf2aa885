// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/cancel_flags.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

class RemoteTier;

/// The right of this machine to compile one request for the fleet: other machines wait for its
/// result. Released by the destructor. It may hold nothing: the machine compiles all the same, and
/// no other waits for it. Movable. Threads: one at a time.
class RemoteLease {
 public:
  RemoteLease() = default;
  /// Holds what `tier` acquired for a request. `tier` outlives it, unless `keep_alive` is called.
  RemoteLease(RemoteTier& tier, ByteView request_canonical);
  RemoteLease(RemoteLease&& other) noexcept;
  RemoteLease& operator=(RemoteLease&& other) noexcept;
  ~RemoteLease();

  bool held() const noexcept { return tier_ != nullptr; }
  void release() noexcept;
  /// `owner` lives at least until the lease is released.
  void keep_alive(std::shared_ptr<RemoteTier> owner) noexcept { owner_ = std::move(owner); }

 private:
  std::shared_ptr<RemoteTier> owner_;
  RemoteTier* tier_ = nullptr;
  std::string request_canonical_;
};

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

  /// Waits while another machine compiles this request, for `limit` at most, and polls `found` for
  /// its result. Empty: `found` returned true. Otherwise this machine compiles the request; with a
  /// lease that is held, the others wait until it is released, or, if the result was `put`, until
  /// the upload has ended.
  virtual std::optional<RemoteLease> await_peer_or_lease(ByteView request_canonical,
                                                         std::chrono::milliseconds limit,
                                                         CancelFlags cancelled,
                                                         const std::function<bool()>& found) = 0;

  /// Offers an entry to the fleet. Returns at once; nothing where this machine may only read.
  virtual void put(const StoreEntry& entry) = 0;

 private:
  friend class RemoteLease;
  /// Ends a lease that a RemoteLease held.
  virtual void release_lease(ByteView request_canonical) = 0;
};

}  // namespace cukiln
