// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln::worker {

/// True once an allocation was refused: what ends the compile after that (an abort, a fault, an odd
/// NVRTC error) is the memory limit's doing.
bool ran_out_of_memory() noexcept;

}  // namespace cukiln::worker
