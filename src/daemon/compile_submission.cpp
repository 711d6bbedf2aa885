// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_submission.hpp"

#include <utility>

#include "key/nvcc_flags.hpp"

namespace cukiln::daemon {

CompileSubmission CompileSubmission::of(wire::CompileOrder order, std::uint64_t order_bytes,
                                        const wire::CompileTerms& terms) {
  CompileSubmission made;
  made.allowed =
      check_arguments(order.request.options.arguments, order.request.program.has_value());
  if (!made.allowed) {
    return made;
  }
  made.canonical = std::make_shared<const std::string>(order.request.canonical());
  made.bytes = order_bytes + made.canonical->size();
  made.digest = CompileRequest::digest_of(*made.canonical);
  made.order = std::make_shared<const wire::CompileOrder>(std::move(order));
  made.timeout = std::chrono::milliseconds(terms.timeout_ms);
  return made;
}

}  // namespace cukiln::daemon
