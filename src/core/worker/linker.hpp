// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/wire/messages.hpp"

namespace cukiln::worker {

/// Opens nvJitLink, in a worker that links and opens no NVRTC. Without src/addons/link this fails,
/// and nothing below is called.
wire::Hello open_linker(const std::string& library);

/// As self_probe: whether nvJitLink reads an object that only the worker serves, and not one that
/// exists only on disk (`library`). A link is given no file; what else nvJitLink looks for is then
/// absent.
wire::Probed probe_linker(const std::string& library);

/// Links with a fixed clock, and with no file but the inputs.
wire::Compiled link_observed(const wire::Link& job);

}  // namespace cukiln::worker
