// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/entry_labels.hpp"
#include "key/file_server.hpp"
#include "key/set_tree.hpp"
#include "wire/daemon_frame.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln::wire {

/// The bodies of a DaemonFrame. `decode` gives nothing for what is short, has something left over,
/// or has a field out of its range: a message is taken whole or not at all.

struct DaemonHello {
  std::uint16_t version = kDaemonProtocol;
  std::uint32_t process = 0;
  std::string program;  ///< for people; at most 64 bytes

  std::string encode() const;
  static std::optional<DaemonHello> decode(ByteView body);
};

struct SetsWanted {
  RequestDigest request;
  std::string canonical;

  std::string encode() const;
  static std::optional<SetsWanted> decode(ByteView body);
};

/// The tree that finds the set that holds; the client has the files.
struct SetsFound {
  SetTree tree;

  std::string encode() const;
  static std::optional<SetsFound> decode(ByteView body);
};

struct EntryWanted {
  CacheKey key;

  std::string encode() const;
  static std::optional<EntryWanted> decode(ByteView body);
};

/// What a compile needs besides the files that the compiler will ask for. The attachment of
/// `compile`.
struct CompileOrder {
  CompileRequest request;
  EntryLabels labels;
  /// The client's NVRTC. A daemon of the same user opens it; a system's has its own, and uses that
  /// if it is the same.
  std::string library, builtins;
  std::vector<std::string> headers;

  std::string encode() const;
  static std::optional<CompileOrder> decode(ByteView body);
};

/// The body of `compile`.
struct CompileTerms {
  std::uint32_t timeout_ms = 0;
  bool again = false;  ///< nothing that the daemon has holds for the client's files

  std::string encode() const;
  static std::optional<CompileTerms> decode(ByteView body);
};

/// Where the files of a `compile` with the same id are, for a daemon of the same user to compile it
/// again when one changes. All folders are absolute.
struct SourceRoots {
  std::vector<VirtualRoot> roots;

  std::string encode() const;
  static std::optional<SourceRoots> decode(ByteView body);
};

/// An entry of the store. The attachment of `entry`, with a checksum at its end; the image in it is
/// not copied.
struct EntryBody {
  CacheKey key;
  std::string request_canonical;
  std::string set_canonical;
  std::string kernels;  ///< encode_kernels
  std::string log;
  EntryLabels labels;
  std::int64_t compile_us = 0;
  std::uint8_t origin = 0;
  std::string signer;
  SharedBytes image;

  Result<UniqueFd> seal() const;
  static std::optional<EntryBody> decode(const SharedBytes& attachment);
};

/// The body of `entry`: what it is to the client that gets it. Encoded with a checksum: a wrong bit
/// here would store what depends on the time.
struct EntryTerms {
  bool caused = false;  ///< this client's request is what was compiled
  bool stored = true;   ///< it is in the daemon's store
  bool uses_time = false;
  bool observed = true;

  std::string encode() const;
  static std::optional<EntryTerms> decode(ByteView body);
};

struct Refusal {
  ErrorCode code = ErrorCode::internal;
  std::string message;  ///< paths in it, and in the log, are virtual
  std::string log;
  /// What the failed compile had looked at: another client's error is this one's too where the set
  /// holds for its files. Empty: no matter what the files are.
  std::string set_canonical;

  static Refusal of(const Error& error, std::string set_canonical = {}) {
    return {error.code(), error.message(), error.log(), std::move(set_canonical)};
  }
  std::string encode() const;
  static std::optional<Refusal> decode(ByteView body);
};

struct Progress {
  bool running = false;  ///< false: it waits for its turn
  std::uint32_t elapsed_ms = 0;

  std::string encode() const;
  static std::optional<Progress> decode(ByteView body);
};

/// Why a daemon does not take a compile, though nothing is wrong: the body of `declined`.
struct Declined {
  std::string reason;
  bool later = false;  ///< asked again in a while it may take it

  std::string encode() const;
  static std::optional<Declined> decode(ByteView body);
};

/// What a client has counted since it last told: the body of `report`. A daemon adds up the names
/// that it knows.
struct ClientReport {
  static constexpr std::size_t kMaxNumbers = 256;
  static constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 40;
  std::vector<std::pair<std::string, std::uint64_t>> numbers;

  std::string encode() const;
  static std::optional<ClientReport> decode(ByteView body);
};

/// How a daemon is, for people and for metrics: the answer to `state`, and what an operations door
/// shows. Counters since it started, by their metric's name.
struct DaemonSnapshot {
  struct Job {
    std::string name, target;
    RequestDigest request;
    std::uint32_t owner_process = 0, owner_user = 0;
    std::uint32_t elapsed_ms = 0;
    std::uint32_t waiters = 0;
    bool running = false;
    bool orphaned = false;  ///< whoever asked has gone
  };
  std::uint32_t process = 0;
  std::string build, store, socket;
  bool system = false, draining = false;
  std::uint64_t uptime_ms = 0;
  std::vector<Job> jobs;
  std::vector<std::pair<std::string, std::uint64_t>> counters;

  std::uint64_t counter(std::string_view name) const noexcept;
  std::string encode() const;
  static std::optional<DaemonSnapshot> decode(ByteView body);
};

}  // namespace cukiln::wire
