// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "addons/daemon/ops/ops_source.hpp"
#include "core/base/bytes.hpp"

namespace cukiln::ops {

/// The content of the admin HTTP server: the page, its JSON, metrics and health. Parses requests
/// with cpp-httplib, from memory and into memory, so that cpp-httplib handles no socket and no
/// file. Threads: safe.
class HttpResponder {
 public:
  explicit HttpResponder(OpsSource& source);
  ~HttpResponder();

  /// Returns the whole response to a request without a body. `tcp`: the request came over TCP,
  /// where a foreign web page can make a browser send it; its Host header must name this host.
  std::string respond(ByteView head, bool tcp);

 private:
  class Server;
  const std::unique_ptr<Server> server_;
};

}  // namespace cukiln::ops
