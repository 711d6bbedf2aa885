// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln::testing {

// Defined in paths.cpp: no other file's text or command has a path of this checkout, so that ccache
// finds their objects whatever the checkout's folder is called.

/// Returns the folder of the programs and libraries that are built beside the tests.
std::string bin();
/// Returns the folder of the sources.
std::string sources();

extern const char* const kTestWorker;
/// The worker with libc's allocator and a limit of its address space: the same one, but for the
/// sanitised worker of preset asan, which has neither.
extern const char* const kPlainWorker;
extern const char* const kFakeNvrtc;
extern const char* const kUnobservedNvrtc;

}  // namespace cukiln::testing
