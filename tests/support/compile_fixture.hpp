// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/compile/nvrtc_compiler.hpp"
#include "core/compile/worker_process.hpp"
#include "support/paths.hpp"
#include "support/scratch.hpp"
#include "support/wait.hpp"

namespace cukiln::testing {

/// Options with which a compiler finds this library only.
inline NvrtcCompilerOptions fake_options(const char* library = kFakeNvrtc) {
  NvrtcCompilerOptions options;
  options.search.nvrtc_library = library;
  options.search.system = false;
  options.worker = kTestWorker;
  return options;
}

/// The path of a script that appends its process's number to `started`, runs the shell command
/// `before` and becomes the worker.
inline std::string counted_worker(const ScratchFolder& folder, const std::string& started,
                                  const std::string& before = {}) {
  const std::string path =
      folder.write("worker.sh", "#!/bin/sh\necho $$ >>'" + started + "'\n" + before + "\nexec '" +
                                    kTestWorker + "' \"$@\"\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}
/// A shell command that waits for a file, or for the end of the test, which removes the script.
inline std::string until_exists(const std::string& path) {
  return "while [ -e \"$0\" ] && [ ! -e '" + path + "' ]; do /bin/sleep 0.01; done";
}
inline std::size_t lines_in(const std::string& path) {
  const std::string text = read_all(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// A request and the files it may see: one source in memory, include folders on disk.
struct TestModule {
  CompileRequest request;
  std::vector<VirtualRoot> roots;
  std::string source_path = std::string(kSourceRoot) + "/k.cu";
  std::string label = "k";
  std::chrono::milliseconds timeout{120'000};
  std::uint64_t expected_bytes = 0;
  StatCache stats;
  std::unique_ptr<FileServer> files;
  NvrtcFailure failure;  ///< of the last run

  explicit TestModule(std::string source, std::vector<std::string> include = {},
                      std::vector<std::string> arguments = {}) {
    request.target = {100, 'a'};
    request.options.arguments = {"--gpu-architecture=sm_100a", "--std=c++17", "--ptxas-options=-v"};
    for (std::string& argument : arguments) {
      request.options.arguments.push_back(std::move(argument));
    }
    for (std::size_t i = 0; i < include.size(); ++i) {
      const std::string root = std::string(kIncludeRoot) + "/" + std::to_string(i);
      request.options.arguments.push_back("--include-path=" + root);
      roots.push_back({root, {include[i]}});
    }
    request.options.arguments.push_back(std::string("--include-path=") + kToolkitRoot);
    request.sources.push_back({source_path, SharedBytes(std::move(source))});
  }

  void arch(int capability, char suffix) {
    request.target = {capability, suffix};
    request.options.arguments[0] = "--gpu-architecture=" + request.target.name();
  }

  Result<CompileOutcome> run(Compiler& compiler, CompileGuard guard = {},
                             CancelFlags cancelled = {}) {
    auto toolchain = compiler.toolchain();
    if (!toolchain) {
      return toolchain.error();
    }
    request.toolchain = *toolchain;
    std::vector<VirtualRoot> all = roots;
    all.push_back({kToolkitRoot, compiler.toolkit_folders()});
    files = std::make_unique<FileServer>(std::move(all), &stats);
    for (const VirtualSource& source : request.sources) {
      files->add_memory_file(source.path, source.text);
    }
    return compiler.compile({{request, label, nullptr, timeout, cancelled, expected_bytes},
                             FileSource(*files),
                             std::move(guard),
                             nullptr,
                             &failure});
  }
};

/// The result of a compile that must succeed.
inline CompileResult must(Result<CompileOutcome> outcome) {
  if (!outcome) {
    FAIL(outcome.error().message() << "\n" << outcome.error().log());
  }
  return std::move(outcome->result);
}

}  // namespace cukiln::testing
