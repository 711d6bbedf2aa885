// SPDX-License-Identifier: Apache-2.0
// Every header of this folder but <version> begins with this one.
//
// These are the standard headers for device code: NVRTC has none of its own. cukiln serves them
// behind all folders of the search; other programs name this folder as the last -I. What CUDA's
// `cuda::std` has becomes visible in `std`; what it lacks is here, or is declared and not defined if
// it makes no sense on a device. Use of the latter in device code fails when the cubin is linked
// ("Unresolved extern function"), so that a header for hosts and devices can name it in its host
// part.
//
// A directive and not declarations, because versions of CUDA differ in what they have.
// Consequences: a template of `cuda::std` cannot be specialised in `std`. Those that programs
// specialise (numeric_limits, hash) are therefore templates of `std` itself; with `using namespace
// std`, their unqualified names are ambiguous.
#pragma once

#define CUKILN_STD_FUNCTION __host__ __device__

namespace cuda {
namespace std {}
}  // namespace cuda
namespace std {
using namespace cuda::std;
}
