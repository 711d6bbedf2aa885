// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/compile/nvrtc_api.hpp"
#include "core/wire/messages.hpp"

namespace cukiln::worker {

/// Compiles a program that reports NVRTC's full version, whether NVRTC read a header that only the
/// worker serves, and whether it saw a file that exists only on disk (`library`). The worker
/// observes NVRTC's accesses if the first is true and the second is not.
wire::Probed self_probe(const NvrtcApi& api, const std::string& library);

}  // namespace cukiln::worker
