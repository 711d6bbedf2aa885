// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/compile_fixture.hpp"
#include "support/paths.hpp"

namespace cukiln::testing {

/// Options for this machine's NVRTC, or for the one below `root`.
inline NvrtcCompilerOptions real_options(const std::string& root = {}) {
  NvrtcCompilerOptions options;
  options.worker = kTestWorker;
  options.search.system = root.empty();
  options.search.default_roots =
      root.empty() ? NvrtcSearch::built_in_roots() : std::vector<std::string>{root};
  return options;
}

/// Roots of further NVRTC versions: those that `scripts/bootstrap --tests` fetched, or those in
/// CUKILN_TEST_NVRTC_ROOTS (semicolons between two; empty for none).
inline std::vector<std::string> further_roots() {
  std::vector<std::string> roots;
  if (const char* value = std::getenv("CUKILN_TEST_NVRTC_ROOTS")) {
    std::istringstream all(value);
    for (std::string root; std::getline(all, root, ';');) {
      if (!root.empty()) {
        roots.push_back(root);
      }
    }
    return roots;
  }
  const std::filesystem::path fetched = sources() + "/.cukiln-cuda-tested";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(fetched, none)) {
    if (entry.path().extension() != ".part") {
      roots.push_back(entry.path());
    }
  }
  std::sort(roots.begin(), roots.end());
  REQUIRE_MESSAGE(!roots.empty(), "there is no other NVRTC: run scripts/bootstrap --tests");
  return roots;
}

/// The compiler, and so the worker, that all tests of a binary share.
class RealNvrtc {
 public:
  static NvrtcCompilerOptions options() { return real_options(); }
  static NvrtcCompiler& compiler() {
    static NvrtcCompiler shared(options());
    return shared;
  }
};

}  // namespace cukiln::testing
