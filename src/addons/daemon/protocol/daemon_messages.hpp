// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "addons/daemon/protocol/daemon_frame.hpp"
#include "core/base/bytes.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/entry_labels.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln::wire {

// The bodies of DaemonFrames. `decode` returns nothing if a body is short, has bytes left over, or
// has a field out of its range: a message is accepted whole or not at all.

/// The body of `hello`: the client introduces itself.
struct DaemonHello {
  std::uint16_t version = kDaemonProtocol;
  std::uint32_t process = 0;
  std::string program;  ///< informative; at most 64 bytes

  std::string encode() const;
  static std::optional<DaemonHello> decode(ByteView body);
};

/// The body of `obtain`: asks for the entry of a request that holds for the client's files.
struct ObtainTerms {
  std::uint32_t timeout_ms = 0;  ///< 0: looks up; else compiles the order in the attachment
  std::string canonical{};       ///< the request to look up; may be in the attachment instead

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.timeout_ms, self.canonical);
  }

  std::string encode() const;
  static std::optional<ObtainTerms> decode(ByteView body);
};

/// The body of `invalidate`, and of the `answer` that chooses among the sets of a lookup.
struct EntryKey {
  CacheKey key;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.key);
  }

  std::string encode() const;
  static std::optional<EntryKey> decode(ByteView body);
};

/// The body of `get_blob`: asks for a blob.
struct BlobWanted {
  std::string kind, key;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.kind, self.key);
  }

  std::string encode() const;
  static std::optional<BlobWanted> decode(ByteView body);
};

/// The attachment of an `obtain` that compiles: everything a compile needs except the files, which
/// the daemon asks for.
struct CompileOrder {
  CompileRequest request;
  EntryLabels labels;
  /// The client's NVRTC, which the daemon opens.
  std::string library, builtins;
  std::vector<std::string> headers;

  std::string encode() const;
  static std::optional<CompileOrder> decode(ByteView body);
};

/// The `answer` to `still_needed`: whether the client's lookup found nothing once more.
struct StillNeeded {
  bool needed = true;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.needed);
  }

  std::string encode() const;
  static std::optional<StillNeeded> decode(ByteView body);
};

/// The body of `object` if that is an entry: how the receiving client may use it. Has a checksum,
/// because a flipped bit could make the client store a result that depends on the time.
struct EntryTerms {
  bool caused = false;  ///< the entry was compiled for this client's order
  bool stored = true;   ///< the daemon has stored it
  bool uses_time = false;
  bool observed = true;

  std::string encode() const;
  static std::optional<EntryTerms> decode(ByteView body);
};

/// The body or attachment of `error`.
struct Refusal {
  ErrorCode code = ErrorCode::internal;
  std::string message;  ///< paths in it, and in the log, are virtual
  std::string log;
  /// The dependency set of a failed compile that was joined: the error concerns this client too if
  /// the set holds for its files. Empty for an error that does not depend on another client's
  /// files.
  std::string set_canonical;

  static Refusal of(const Error& error, std::string set_canonical = {}) {
    return {error.code(), error.message(), error.log(), std::move(set_canonical)};
  }
  std::string encode() const;
  static std::optional<Refusal> decode(ByteView body);
};

/// The body of `progress`.
struct Progress {
  bool running = false;  ///< false while the order is queued
  std::uint32_t elapsed_ms = 0;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.running, self.elapsed_ms);
  }

  std::string encode() const;
  static std::optional<Progress> decode(ByteView body);
};

/// The body of `declined`: why the daemon does not accept an order that is not at fault.
struct Declined {
  std::string reason;
  bool later = false;  ///< it may accept the order later

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.reason, self.later);
  }

  std::string encode() const;
  static std::optional<Declined> decode(ByteView body);
};

/// The body of `report`: a client's counters since its last report, each once. The daemon adds
/// those whose names it knows to its own.
struct ClientReport {
  static constexpr std::size_t kMaxNumbers = 256;
  static constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 36;  ///< 19 hours in microseconds
  std::vector<std::pair<std::string, std::uint64_t>> numbers;

  std::string encode() const;
  static std::optional<ClientReport> decode(ByteView body);
};

/// The daemon's status, for `cukiln daemon status`, the admin HTTP server and metrics: the reply to
/// `state`. Counters are since its start, by their metrics' names.
struct DaemonSnapshot {
  struct Job {
    std::string name, target;
    RequestDigest request;
    std::uint32_t owner_process = 0;
    std::uint32_t elapsed_ms = 0;
    std::uint32_t waiters = 0;
    bool running = false;
    bool orphaned = false;  ///< the client that ordered it has disconnected

    template <class Self>
    static auto fields(Self& self) {
      return std::tie(self.name, self.target, self.request, self.owner_process, self.elapsed_ms,
                      self.waiters, self.running, self.orphaned);
    }
  };
  std::uint32_t process = 0;
  std::string build, store, socket;
  std::string page;  ///< `http://localhost:9464/`; empty without an admin HTTP address
  bool draining = false;
  std::uint64_t uptime_ms = 0;
  std::vector<Job> jobs;
  std::vector<std::pair<std::string, std::uint64_t>> counters;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.process, self.build, self.store, self.socket, self.page, self.draining,
                    self.uptime_ms, self.jobs, self.counters);
  }

  std::uint64_t counter(std::string_view name) const noexcept;
  std::string encode() const;
  static std::optional<DaemonSnapshot> decode(ByteView body);
};

}  // namespace cukiln::wire
