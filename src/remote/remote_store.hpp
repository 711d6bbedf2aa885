// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel_flags.hpp"
#include "base/clock.hpp"
#include "base/logger.hpp"
#include "remote/endpoint.hpp"
#include "remote/envelope.hpp"
#include "remote/keys.hpp"
#include "remote/negative_cache.hpp"
#include "remote/server_breaker.hpp"
#include "store/remote_tier.hpp"

namespace cukiln {

/// Requests of one kind to one server.
struct RemoteTraffic {
  /// In milliseconds: a hit on the same network, the deadline of a look-up, an upload's.
  static constexpr std::array<std::uint64_t, 10> kBoundsMs = {1,  2,   5,   10,    25,
                                                              50, 100, 200, 1'000, 10'000};
  std::array<std::uint64_t, kRemoteStatuses> ended{};    ///< by how
  std::array<std::uint64_t, kBoundsMs.size()> within{};  ///< each bound, the smaller ones too
  std::chrono::microseconds took{0};

  void add(RemoteStatus how, std::chrono::microseconds took) noexcept;
};

/// What a remote store did. Relaxed: each number is right, all together are no snapshot.
struct RemoteStats {
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t stored = 0, dropped = 0;  ///< uploads that arrived, and that were given up
  std::uint64_t queued = 0;               ///< uploads that wait, or are under way
  std::uint64_t waits = 0;                ///< requests that waited for another machine's compile
  std::uint64_t skipped = 0;              ///< not asked: the server failed a moment ago
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::array<std::uint64_t, kRemoteStatuses> requests{};  ///< by how they ended
  std::array<std::uint64_t, kRejections> rejected{};      ///< objects, by reason
};

/// The fleet's stores behind one tier: looked at in order, written all. A server that is down, slow
/// or hostile costs a bounded time, and nothing that it says is believed without a signature.
class RemoteStore final : public RemoteTier {
 public:
  struct Options {
    std::vector<std::unique_ptr<RemoteEndpoint>> endpoints;
    TrustedKeys trusted;
    std::optional<SecretKey> key;  ///< makes this a writer, who believes itself too
    std::chrono::milliseconds look_up_timeout{200};
    std::chrono::milliseconds upload_timeout{10'000};
    std::size_t most_queued = 64;
    std::uint64_t most_queued_bytes = 256ull << 20;
    std::chrono::milliseconds absent_for{60'000};  ///< not asked again before
    std::chrono::milliseconds bad_for{600'000};
    std::chrono::milliseconds lease{3'000};  ///< renewed while it is needed
    const Clock* clock = &Clock::system();
    Logger log;
  };
  explicit RemoteStore(Options options);
  /// What is not uploaded yet is dropped: `finish` waits for it.
  ~RemoteStore() override;

  /// From the settings' texts. Null: no store is named. Does not touch the network.
  /// Errors: invalid_argument (an address, a key, no key at all), not_found, io.
  static Result<std::unique_ptr<RemoteStore>> open(const std::string& stores,
                                                   const std::string& trust,
                                                   const std::string& sign,
                                                   std::chrono::milliseconds look_up_timeout,
                                                   const Logger& log);

  std::optional<StoreEntry> find(ByteView request_canonical, SetCheck& check,
                                 Freshness freshness) override;
  std::optional<RemoteLease> await_peer_or_lease(ByteView request_canonical,
                                                 std::chrono::milliseconds limit,
                                                 CancelFlags cancelled,
                                                 const std::function<bool()>& found) override;
  void put(const StoreEntry& entry) override;

  /// Waits for the uploads, `patience` at most, and gives the others up. True: all arrived, or
  /// failed on their own.
  bool finish(std::chrono::milliseconds patience);

  bool writes() const noexcept { return options_.key.has_value(); }
  const TrustedKeys& trusted() const noexcept { return options_.trusted; }
  RemoteStats stats() const;

  struct Health {
    std::string where;
    ServerBreaker::State state = ServerBreaker::State::closed;
    bool has_leases = false;
    std::array<std::uint64_t, ServerBreaker::kStates> turns{};  ///< of the breaker
    std::array<RemoteTraffic, kRemoteOps> traffic{};            ///< by what was asked
  };
  std::vector<Health> health() const;
  /// Asks a server, by its place in `health`, for something that is not there. For `doctor`.
  RemoteAnswer probe(std::size_t server);

 private:
  struct Server {
    std::unique_ptr<RemoteEndpoint> endpoint;
    std::unique_ptr<ServerBreaker> breaker;
    std::array<RemoteTraffic, kRemoteOps> traffic{};  // under stats_mutex_
  };
  struct Upload {
    StoreEntry entry;
    std::uint64_t bytes = 0;
  };
  struct Lease {
    std::string request_canonical;
    Server* server = nullptr;
    bool uploading = false;
  };
  using Names = std::map<std::string, Lease>;  // by the name's bytes

  void release_lease(ByteView request_canonical) override;

  enum class Judge { here, whoever_opens };
  using Question = std::function<RemoteAnswer(RemoteEndpoint&)>;
  RemoteAnswer ask(Server& server, RemoteOp op, const Question& question,
                   Judge judge = Judge::here);
  void rejected(Server& server, const ObjectName& name, Rejection why, const Error& error);
  std::optional<FleetSets> sets_on(Server& server, ByteView request_canonical, SteadyTime deadline,
                                   bool& absent);
  std::optional<StoreEntry> get_from(Server& server, const CacheKey& key, SteadyTime deadline);
  void upload(const Upload& job);
  void run_uploads();
  void run_renewals();
  bool acquire_lease(Server& server, ByteView request_canonical, bool& is_free, RemoteLease& lease);
  void drop(Server& server, const ObjectName& name);
  SteadyTime look_up_deadline() const {
    return std::chrono::steady_clock::now() + options_.look_up_timeout;
  }

  Options options_;
  std::vector<Server> servers_;
  NegativeCache absent_;

  mutable std::mutex stats_mutex_;
  RemoteStats stats_;

  mutable std::mutex mutex_;  // of all below; before stats_mutex_
  std::condition_variable work_, idle_, renew_;
  std::deque<Upload> queue_;
  std::uint64_t queued_bytes_ = 0;
  bool uploading_ = false;
  bool stopping_ = false;
  SteadyTime give_up_at_ = SteadyTime::max();
  Names leases_;
  std::thread uploader_, renewer_;
};

}  // namespace cukiln
