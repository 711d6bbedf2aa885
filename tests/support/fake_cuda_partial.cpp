// SPDX-License-Identifier: Apache-2.0
// A libcuda that has a version, from an environment variable, and no other function.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  const char* const named = std::getenv("FAKE_CUDA_PARTIAL_VERSION");
  *version = named != nullptr ? std::atoi(named) : 0;
  return 0;
}
