// SPDX-License-Identifier: Apache-2.0
// In place of operations.cpp, where cpp-httplib is not: it is a shared library only, and programs
// that are carried elsewhere bring all they need.
#include "base/result.hpp"
#include "daemon/main/operations.hpp"

namespace cukiln::daemon {

struct Operations::State {};

Operations::Operations(std::unique_ptr<State> state) : state_(std::move(state)) {}
Operations::~Operations() = default;
int Operations::port() const noexcept { return 0; }

Result<std::unique_ptr<Operations>> Operations::open(Options options, Server& /*server*/,
                                                     TieredStore& /*store*/) {
  if (!options.address.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "--http {}: this cukilnd was built without its operations door",
                      options.address);
  }
  return std::unique_ptr<Operations>();
}

}  // namespace cukiln::daemon
