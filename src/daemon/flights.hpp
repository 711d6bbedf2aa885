// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/logger.hpp"
#include "daemon/compile_run.hpp"
#include "daemon/compilers.hpp"
#include "daemon/counters.hpp"
#include "daemon/mailbox.hpp"
#include "daemon/user_stores.hpp"
#include "loader/failure_memory.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

/// Who asked, and under which number.
struct Asker {
  std::uint64_t connection = 0;
  std::uint64_t id = 0;
  std::uint32_t process = 0;
  std::uint32_t user = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

/// How the flights speak to clients. A client that has gone gets nothing, and nobody minds.
class Replies {
 public:
  virtual ~Replies() = default;
  virtual void reply(const Asker& to, wire::DaemonOp op, std::string body,
                     std::shared_ptr<UniqueFd> attachment) = 0;
  /// It owes an answer for too long: it is closed, and `leave` is called for it.
  virtual void give_up(const Asker& client) = 0;
};

/// One compile per user and request: who asks for what is being compiled for the same user waits
/// with the others. The first of them, the owner, answers questions about files. When it goes, what
/// needs no further answer goes on, and what does begins again for the next. Results and failures
/// are the user's; nothing of them reaches another's. Scheduling is fair across users: see
/// next_in_turn. Threads: the loop's only; each run has a thread, which speaks through the mailbox.
class Flights {
 public:
  struct Options {
    unsigned at_once = 1;
    std::size_t max_waiting = 1024;            ///< flights that wait for their turn
    std::uint64_t max_held_bytes = 512 << 20;  ///< of texts
    std::chrono::milliseconds longest{300'000};
    std::chrono::milliseconds progress_every{500};
    std::chrono::milliseconds answer_within{10'000};
  };
  Flights(Options options, Compilers& compilers, UserStores& stores, RemoteTier* remote,
          Replies& replies, Mailbox& mailbox, DaemonCounters& counters, Logger log);
  ~Flights();

  void compile(const Asker& asker, const wire::CompileTerms& terms, wire::CompileOrder order);
  /// Where the files of this client's compile are. It may have ended.
  void places(const Asker& asker, wire::SourceRoots places);
  /// Nobody waits for it, and its files are opened here. It begins when no client's waits, one at a
  /// time, and beside `at_once`: it takes nobody's place.
  void compile_ahead(std::shared_ptr<const wire::CompileOrder> order,
                     std::shared_ptr<const wire::SourceRoots> places);
  /// Called after a compile whose files this process can open.
  using Compiled = std::function<void(std::shared_ptr<const wire::CompileOrder> order,
                                      std::shared_ptr<const wire::SourceRoots> places,
                                      std::string set_canonical)>;
  void on_compiled(Compiled compiled) { compiled_ = std::move(compiled); }
  /// False: nobody asked this client anything.
  bool answer(const Asker& from, std::string body);
  /// The client has lost interest in one question, or has gone (`id` 0).
  void leave(const Asker& asker);

  /// What is due, and when the next thing will be.
  std::chrono::steady_clock::time_point tick(std::chrono::steady_clock::time_point now);

  /// Takes nothing new, and lets nothing new begin.
  void drain();
  /// Ends what runs; its waiters are told.
  void cancel_all();
  bool idle() const noexcept { return flights_.empty(); }

  void describe(wire::DaemonSnapshot& snapshot) const;
  /// Requests that are not tried for a while.
  std::size_t quarantined();

 private:
  struct Flight;
  using Place = std::list<Flight>::iterator;
  using Key = std::pair<std::uint32_t, RequestDigest>;  // of a user's
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<RequestDigest>()(key.second) ^ (std::size_t{key.first} << 32);
    }
  };

  void begin(Flight flight);
  Flight* next_in_turn();
  void start_ahead();
  void start_next();
  void start(Flight& flight);
  void finish(std::uint64_t serial, RunResult result);
  void count(const RunResult& result);
  void tell_all(Flight& flight, const RunResult& result);
  void drop_waiter(Flight& flight, const Asker& asker);
  Place find(std::uint64_t serial);
  Place remove(Place place);

  const Options options_;
  Compilers& compilers_;
  UserStores& stores_;
  RemoteTier* const remote_;
  Replies& replies_;
  Mailbox& mailbox_;
  DaemonCounters& counters_;
  const Logger log_;
  std::map<std::uint32_t, FailureMemory> failures_;  // by user

  std::list<Flight> flights_;  // in the order they were asked for
  std::unordered_map<Key, std::uint64_t, KeyHash> by_request_;
  std::uint64_t last_serial_ = 0;
  std::uint64_t held_bytes_ = 0;
  unsigned running_ = 0;  ///< without the one that is ahead
  bool running_ahead_ = false;
  Compiled compiled_;
  bool draining_ = false;
  std::chrono::steady_clock::time_point next_progress_{};
};

}  // namespace cukiln::daemon
