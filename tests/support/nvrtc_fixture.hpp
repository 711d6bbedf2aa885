#pragma once

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "compile/in_process_compiler.hpp"
#include "support/compile_fixture.hpp"

namespace cukiln::testing {

/// Options for the NVRTC that the machine has, or for the one below `root`.
inline NvrtcCompilerOptions real_options(const std::string& root = {}) {
  NvrtcCompilerOptions options;
  options.worker = kTestWorker;
  options.search.system = root.empty();
  options.search.default_roots =
      root.empty() ? NvrtcSearch::built_in_roots() : std::vector<std::string>{root};
  return options;
}

/// Roots of further NVRTC versions, from CUKILN_TEST_NVRTC_ROOTS (semicolons between).
inline std::vector<std::string> further_roots() {
  const char* value = std::getenv("CUKILN_TEST_NVRTC_ROOTS");
  std::istringstream all(value != nullptr ? value : "");
  std::vector<std::string> roots;
  for (std::string root; std::getline(all, root, ';');) {
    if (!root.empty()) {
      roots.push_back(root);
    }
  }
  return roots;
}

/// One compiler, and so one worker, for all tests of a binary.
class RealNvrtc {
 public:
  static NvrtcCompilerOptions options() { return real_options(); }
  static NvrtcCompiler& compiler() {
    static NvrtcCompiler shared(options());
    return shared;
  }
};

}  // namespace cukiln::testing
