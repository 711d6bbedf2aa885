// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/store/object_name.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

using SteadyTime = std::chrono::steady_clock::time_point;

/// How a request to a server ended. The names are the label of a metric.
enum class RemoteStatus {
  ok,
  absent,       ///< the server has no such object
  timeout,      ///< no complete reply before the deadline
  unreachable,  ///< no such host, or no process listens
  busy,         ///< a temporary failure: 429, 5xx, -OOM, -LOADING
  denied,       ///< this client has no permission: the configuration is wrong
  untrusted,    ///< the server's certificate was not accepted, or this client's by the server
  redirected,   ///< the server redirects to another one, which is not configured and not followed
  bad_answer,   ///< the reply is malformed
  oversize,     ///< the object is larger than the limit
  hung          ///< a call into a file system has not returned
};
inline constexpr int kRemoteStatuses = static_cast<int>(RemoteStatus::hung) + 1;
const char* name_of(RemoteStatus status) noexcept;

/// The kinds of requests. The names are the label of a metric.
enum class RemoteOp { get, put, lease };
inline constexpr int kRemoteOps = static_cast<int>(RemoteOp::lease) + 1;
const char* name_of(RemoteOp op) noexcept;

/// The reply to a request, or why there is none.
struct RemoteAnswer {
  RemoteStatus status = RemoteStatus::ok;
  std::string body;    ///< of a successful get
  std::string detail;  ///< for messages: `HTTP status 403`
  /// True for a failed answer whose host refused the connection, or whose server is starting.
  bool is_restarting = false;
  /// True for a failed put that will fail again, of this object: it is malformed or too large
  /// there.
  bool refuses_object = false;
  std::vector<std::string> parts;  ///< of a successful get_parts
};

/// What a collection removed from a folder, or would remove.
struct RemoteCollection {
  std::uint64_t files = 0, bytes = 0;
};

/// A server that stores objects by name. Every call ends at its deadline, whatever the server does.
/// Threads: safe.
class RemoteEndpoint {
 public:
  virtual ~RemoteEndpoint() = default;

  /// Returns the server's address for messages, without passwords: `redis://cache:6379/cukiln6`.
  virtual const std::string& where() const noexcept = 0;
  virtual RemoteAnswer get(const ObjectName& name, SteadyTime deadline) = 0;
  virtual RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime deadline) = 0;

  /// True if this machine never writes there.
  virtual bool is_read_only() const noexcept { return false; }
  /// True if objects without a signature are accepted from there.
  virtual bool takes_unsigned() const noexcept { return false; }
  /// True if the sets of a request have one part for each set and signer, so that no machine's
  /// addition replaces that of another. Other objects have none.
  virtual bool has_parts() const noexcept { return false; }
  /// Returns the parts, the youngest first.
  virtual RemoteAnswer get_parts(const ObjectName&, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  virtual RemoteAnswer put_part(const ObjectName&, const std::string& /*part*/, ByteView /*bytes*/,
                                SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }

  /// Removes what was neither written nor used for some time, by the server's clock, but nothing
  /// that is younger than an hour. Nothing if the server removes objects itself. Errors: io.
  virtual std::optional<Result<RemoteCollection>> collect(std::int64_t /*max_age_s*/,
                                                          bool /*dry_run*/) {
    return std::nullopt;
  }

  /// True if the server keeps leases. A lease is advisory: it says that a machine compiles a
  /// request, and it expires by itself. A lost lease costs a second compile and nothing else.
  virtual bool has_leases() const noexcept { return false; }
  /// Returns ok if this machine holds the lease now, absent if another one does. The server shows
  /// `token` to those who query it.
  virtual RemoteAnswer acquire_lease(const ObjectName&, ByteView /*token*/,
                                     std::chrono::milliseconds /*expiry*/,
                                     SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  virtual RemoteAnswer renew_lease(const ObjectName&, ByteView /*token*/,
                                   std::chrono::milliseconds /*expiry*/, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  virtual RemoteAnswer release_lease(const ObjectName&, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
  /// Returns ok and the token if a machine holds the lease, absent if none does.
  virtual RemoteAnswer query_lease(const ObjectName&, SteadyTime /*deadline*/) {
    return {RemoteStatus::denied, {}, {}};
  }
};

/// Returns the deadline for connecting, half of the remaining time, so that an unreachable server
/// is reported as such and not as a timeout.
inline SteadyTime connect_deadline(SteadyTime deadline) {
  const SteadyTime now = std::chrono::steady_clock::now();
  return now + (deadline - now) / 2;
}

/// The options after an address: `?ca=FILE&certificate=FILE&region=NAME`, `?ro&unsigned`.
struct RemoteOptions {
  std::string ca;           ///< PEM: authorities for the server's certificate; empty: the system's
  std::string certificate;  ///< PEM: this machine's certificate and its key
  std::string region;       ///< of S3
  bool is_read_only = false;  ///< a folder that is never written
  bool is_unsigned = false;   ///< a folder of root or this user, whose objects need no signature
};

/// Makes the endpoint of `http(s)://[user:password@]host[:port]/path`. Objects are stored as
/// `path/<2>/<62 hex digits>`; if the path ends in `ac`, as `path/<64 hex digits>`, which is
/// Bazel's layout. With `s3+` before it, user and password are S3's access key and secret key,
/// which sign each request, and the path is a bucket's. Errors: invalid_argument.
Result<std::unique_ptr<RemoteEndpoint>> make_http_remote(const std::string& url,
                                                         const RemoteOptions& options = {});
/// Makes the endpoint of `redis(s)://[[user]:password@]host[:port][/prefix]`; the prefix is
/// `cukiln6` by default. Errors: invalid_argument.
Result<std::unique_ptr<RemoteEndpoint>> make_redis_remote(const std::string& url,
                                                          const RemoteOptions& options = {});
/// Makes the endpoint of a folder that machines share, `file:///path`. Errors: invalid_argument.
Result<std::unique_ptr<RemoteEndpoint>> make_folder_remote(const std::string& url,
                                                           const RemoteOptions& options = {});
/// True for the name of one of RemoteOptions. Their values are no secrets.
bool is_remote_option(std::string_view name) noexcept;
/// The error of a build without libcurl, which HTTP and TLS need.
inline constexpr const char* kWithoutCurl =
    "this cukiln was built without libcurl (as the one of the Python package is) and supports "
    "neither HTTP nor TLS; use redis://, or a cukiln and cukilnd that were built with libcurl";
/// Splits a list of addresses at its commas.
std::vector<std::string> split_addresses(std::string_view list);
/// Makes the endpoint of any supported address with options. Errors: invalid_argument, naming what
/// was given.
Result<std::unique_ptr<RemoteEndpoint>> make_remote_endpoint(const std::string& url);

}  // namespace cukiln
