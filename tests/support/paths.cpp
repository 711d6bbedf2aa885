// SPDX-License-Identifier: Apache-2.0
#include "support/paths.hpp"

namespace cukiln::testing {

std::string bin() { return CUKILN_TEST_BINARY_DIR; }
std::string sources() { return CUKILN_TEST_SOURCE_DIR; }

const char* const kTestWorker = CUKILN_TEST_BINARY_DIR "/cukiln-compile-worker";
#if defined(__SANITIZE_ADDRESS__)
const char* const kPlainWorker = CUKILN_TEST_BINARY_DIR "/cukiln-plain-compile-worker";
#else
const char* const kPlainWorker = kTestWorker;
#endif
const char* const kFakeNvrtc = CUKILN_TEST_BINARY_DIR "/libnvrtc_fake.so";
const char* const kUnobservedNvrtc = CUKILN_TEST_BINARY_DIR "/libnvrtc_fake_unobserved.so";

}  // namespace cukiln::testing
