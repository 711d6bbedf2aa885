// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/logger.hpp"
#include "compile/compiler.hpp"
#include "loader/counters.hpp"
#include "loader/failure_memory.hpp"
#include "loader/in_flight.hpp"
#include "loader/module_request.hpp"
#include "store/cubin_store.hpp"
#include "store/remote_tier.hpp"
#include "store/signers.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

/// Why a look-up missed.
struct Miss {
  enum class Why {
    not_stored,  ///< nothing of the request is stored: it is new, or all of it was removed
    changed,
    appeared,
    vanished,
    relinked,  ///< was one file with another path, and is not; or the other way round
    damaged,
    revoked,  ///< signed by a key that was revoked
    evicted   ///< recorded beside others of its request, and evicted or removed since
  } why = Why::not_stored;
  std::string path;  ///< the header, as the user knows it

  std::string text() const;  ///< `header changed: include/tile.cuh`
};

/// A cubin and how it was come by.
struct Built {
  StoreEntry entry;
  Outcome outcome = Outcome::hit;
  std::string reason;
  std::string not_stored;
  bool store_refused = false;  ///< it should have been stored
};

/// From a request to a cubin, for the library: looks up, and drives a CompilePipeline where nothing
/// is found. Joins the store and the compiler; knows no driver. Threads: safe.
class Builder {
 public:
  struct Options {
    bool offline = false;
    std::chrono::milliseconds compile_timeout{300'000};
    std::string flight_directory;  ///< empty: single flight within this process only
    CubinStore* daemon = nullptr;  ///< asked where the store has nothing; null: there is none
    RevokedKeys revoked_keys;      ///< what they signed is a miss, and removed
    Logger log;
  };
  Builder(CubinStore& store, Compiler& compiler, StatCache& stats, Counters& counters,
          Options options);

  /// The stored entry whose dependency set holds for this host's files now, or why there is none.
  struct Found {
    std::optional<StoreEntry> entry;
    Miss miss;
  };
  using Purpose = CubinStore::Purpose;
  Found look_up(const ModuleRequest& request, Purpose purpose = Purpose::use);

  /// What `look_up` found, or else a compile. `may_compile` is asked before one starts: an error
  /// there is returned (a sealed loader). `cancelled`: the call's own flag; may be null. Errors:
  /// the compiler's; not_found when offline; timeout when cancelled.
  Result<Built> build(const ModuleRequest& request, Found found,
                      const std::function<Result<void>()>& may_compile = {},
                      const std::atomic<bool>* cancelled = nullptr);

  /// Other machines' results, asked for what is not on this one. Before the first build; outlives
  /// this.
  void set_remote(RemoteTier* remote) noexcept { remote_ = remote; }

  /// Compiles end with `timeout` until they may be resumed.
  void cancel() noexcept { cancelled_.store(true); }
  void resume() noexcept { cancelled_.store(false); }

 private:
  class PipelineCaller;

  void look_in(CubinStore& store, const ModuleRequest& request, Purpose purpose,
               std::unique_ptr<FileServer>& files, Found& found);

  CubinStore& store_;
  Compiler& compiler_;
  StatCache& stats_;
  Counters& counters_;
  const Options options_;
  RemoteTier* remote_ = nullptr;
  std::atomic<bool> cancelled_{false};

  InFlight in_flight_;
  FailureMemory failures_;
};

}  // namespace cukiln
