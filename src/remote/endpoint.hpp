// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "remote/object_name.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

using SteadyTime = std::chrono::steady_clock::time_point;

/// How a request to a server ended. The names are the label of a metric.
enum class RemoteStatus {
  ok,
  absent,       ///< it answered that there is nothing
  timeout,      ///< no whole answer in time
  unreachable,  ///< no such host, nobody listens
  busy,         ///< it said that it cannot now: 429, 5xx, -OOM, -LOADING
  denied,       ///< it said that we may not: the configuration is wrong
  untrusted,    ///< by its certificate it is not who we asked, or nobody we trust; or so it says of
                ///< us
  redirected,   ///< it named another server, which nobody has said to trust
  bad_answer,   ///< what came is no answer
  oversize      ///< larger than anything that can be meant
};
inline constexpr int kRemoteStatuses = static_cast<int>(RemoteStatus::oversize) + 1;
const char* name_of(RemoteStatus status) noexcept;

/// What is asked of a server. The names are the label of a metric.
enum class RemoteOp { get, put, lease };
inline constexpr int kRemoteOps = static_cast<int>(RemoteOp::lease) + 1;
const char* name_of(RemoteOp op) noexcept;

struct RemoteAnswer {
  RemoteStatus status = RemoteStatus::ok;
  std::string body;    ///< with `ok` of a get
  std::string detail;  ///< what happened, for people: `HTTP status 403`
};

/// One server that keeps objects by their names. Every call is over at its deadline, whatever the
/// server does. Threads: safe.
class RemoteEndpoint {
 public:
  virtual ~RemoteEndpoint() = default;

  /// The server for messages, without passwords: `redis://cache:6379/cukiln2`.
  virtual const std::string& where() const noexcept = 0;
  virtual RemoteAnswer get(const ObjectName& name, SteadyTime deadline) = 0;
  virtual RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime deadline) = 0;

  /// Leases: advice that somebody is at work on something, which ends by itself. Losing one costs a
  /// second compile, so nothing here needs to be exact.
  virtual bool has_leases() const noexcept { return false; }
  /// ok: it is ours now; absent: somebody else has it.
  virtual RemoteAnswer take_lease(const ObjectName&, std::chrono::milliseconds /*expiry*/,
                                  SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  virtual RemoteAnswer renew_lease(const ObjectName&, std::chrono::milliseconds /*expiry*/,
                                   SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  virtual RemoteAnswer drop_lease(const ObjectName&, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  /// ok: somebody has it; absent: nobody.
  virtual RemoteAnswer look_at_lease(const ObjectName&, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
};

/// A server that is not reached in half of the time is not there.
inline SteadyTime connect_deadline(SteadyTime deadline) {
  const SteadyTime now = std::chrono::steady_clock::now();
  return now + (deadline - now) / 2;
}

/// What follows an address: `?ca=FILE&certificate=FILE&region=NAME`.
struct RemoteOptions {
  std::string ca;           ///< PEM: who may sign the server's certificate; empty: the system's
  std::string certificate;  ///< PEM: this machine's certificate and its key
  std::string region;       ///< of S3
};

/// The server of `http(s)://[user:password@]host[:port]/path`. Objects lie in `path/<2>/<62 hex
/// digits>`; where the path ends in `ac`, in `path/<64>`: bazel's layout. With `s3+` before it,
/// user and password are S3's access key and secret key, which sign each request, and the path is a
/// bucket's. Errors: invalid_argument.
Result<std::unique_ptr<RemoteEndpoint>> make_http_remote(const std::string& url,
                                                         const RemoteOptions& options = {});
/// `redis(s)://[[user]:password@]host[:port][/prefix]`; the prefix is `cukiln2` by default.
Result<std::unique_ptr<RemoteEndpoint>> make_redis_remote(const std::string& url,
                                                          const RemoteOptions& options = {});
/// Of a build without libcurl, which carries HTTP and TLS.
inline constexpr const char* kWithoutCurl =
    "this cukiln was built without libcurl (as the one of the Python package is): it speaks "
    "neither "
    "HTTP nor TLS; use redis://, or a cukiln and cukilnd that were built on a system with libcurl";
/// Either, with its options. Errors: invalid_argument, naming what was given.
Result<std::unique_ptr<RemoteEndpoint>> make_remote_endpoint(const std::string& url);

}  // namespace cukiln
