// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/logger.hpp"
#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_library.hpp"

namespace cukiln {

/// Compiles each target with the first NVRTC that is new enough for it. If none is, or if a library
/// was configured, that is the first one found. Makes one compiler for each library chosen.
/// Lock-free, because a fork may happen at any time. Threads: safe.
class CompilerByTarget final : public Compiler {
 public:
  /// Makes a compiler for an installed NVRTC; without one, a compiler that searches when it is
  /// used.
  using Make = std::function<std::unique_ptr<Compiler>(std::optional<NvrtcInstall> install)>;

  CompilerByTarget(NvrtcSearch search, Make make, Logger log);
  ~CompilerByTarget() override;

  Compiler& for_target(Target target) override;
  void hint_upcoming(std::size_t compiles) override;
  Result<Toolchain> toolchain() override { return for_target({}).toolchain(); }
  Result<Toolchain> linker() override { return for_target({}).linker(); }
  Result<std::vector<Target>> targets() override { return for_target({}).targets(); }
  std::vector<std::string> toolkit_folders() override { return for_target({}).toolkit_folders(); }
  Result<CompileOutcome> compile(const CompileJob& job) override {
    return for_target(job.input.request.target).compile(job);
  }

 private:
  struct Choice;

  const NvrtcSearch search_;
  const Make make_;
  const Logger log_;
  // Used while no NVRTC is found. It reports the error, or finds one that was installed since.
  const std::unique_ptr<Compiler> fallback_;
  std::atomic<std::size_t> upcoming_{1};
  std::atomic<Choice*> choices_{nullptr};  // a linked list to which choices are only added
};

}  // namespace cukiln
