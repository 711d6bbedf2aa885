// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compile/nvrtc_api.hpp"
#include "wire/messages.hpp"

namespace cukiln::worker {

/// Compiles a few lines that tell NVRTC's full version, whether a header that exists here only was
/// read, and whether a file that exists on disk only (`library` itself) was seen behind our back.
wire::Probed self_probe(const NvrtcApi& api, const std::string& library);

}  // namespace cukiln::worker
