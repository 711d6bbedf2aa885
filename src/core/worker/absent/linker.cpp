// SPDX-License-Identifier: Apache-2.0
// What the worker has without src/addons/link.
#include "core/worker/linker.hpp"

namespace cukiln::worker {

wire::Hello open_linker(const std::string& /*library*/) {
  wire::Hello hello;
  hello.error = "this worker was built without src/addons/link";
  return hello;
}
wire::Probed probe_linker(const std::string& /*library*/) { return {}; }
wire::Compiled link_observed(const wire::Link& /*job*/) { return {}; }

}  // namespace cukiln::worker
