// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "daemon/ops/ops_source.hpp"

namespace cukiln::ops {

/// What the operations door answers: the page, JSON for it, metrics and health. Reads the heads of
/// requests with cpp-httplib, from memory and into memory: no socket and no file is in its reach.
/// Threads: safe.
class HttpResponder {
 public:
  explicit HttpResponder(OpsSource& source);
  ~HttpResponder();

  /// The whole answer to a request without a body. `tcp`: it came from where a browser can be made
  /// to send it by a page of somebody else, so it must name this host.
  std::string respond(ByteView head, bool tcp);

 private:
  class Server;
  const std::unique_ptr<Server> server_;
};

}  // namespace cukiln::ops
