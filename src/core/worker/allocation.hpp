// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln::worker {

/// True once an allocation has failed. A compile that fails after that (by an abort, a fault, an
/// unexpected NVRTC error) is reported as out of memory.
bool ran_out_of_memory() noexcept;

}  // namespace cukiln::worker
