// SPDX-License-Identifier: Apache-2.0
// Replaces admin_http.cpp in builds without cpp-httplib. cpp-httplib is a shared library only, and
// programs that are copied to other machines must be linked statically.
#include "addons/daemon/main/admin_http.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

struct AdminHttp::State {};

AdminHttp::AdminHttp(std::unique_ptr<State> state) : state_(std::move(state)) {}
AdminHttp::~AdminHttp() = default;
int AdminHttp::port() const noexcept { return 0; }

Result<std::unique_ptr<AdminHttp>> AdminHttp::open(Options options, Server& /*server*/,
                                                   TieredStore& /*store*/) {
  if (!options.address.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "--http {}: this cukilnd was built without its admin HTTP server",
                      options.address);
  }
  return std::unique_ptr<AdminHttp>();
}

}  // namespace cukiln::daemon
