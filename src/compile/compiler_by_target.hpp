// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/logger.hpp"
#include "compile/compiler.hpp"
#include "compile/nvrtc_library.hpp"

namespace cukiln {

/// For each target the first NVRTC that is new enough for it; one compiler for each library that
/// was chosen. Where NVRTC was configured, or none is new enough, that is the first there is, as
/// for every target. Takes no lock: a fork may happen at any time.
class CompilerByTarget final : public Compiler {
 public:
  /// With what was found, or with nothing: that one searches by itself when it is asked.
  using Make = std::function<std::unique_ptr<Compiler>(std::optional<NvrtcInstall> install)>;

  CompilerByTarget(NvrtcSearch search, Make make, Logger log);
  ~CompilerByTarget() override;

  Compiler& for_target(Target target) override;
  void hint_upcoming(std::size_t compiles) override;
  Result<Toolchain> toolchain() override { return for_target({}).toolchain(); }
  std::vector<std::string> toolkit_folders() override { return for_target({}).toolkit_folders(); }
  Result<CompileOutcome> compile(const CompileJob& job) override {
    return for_target(job.input.request.target).compile(job);
  }

 private:
  struct Choice;

  const NvrtcSearch search_;
  const Make make_;
  const Logger log_;
  const std::unique_ptr<Compiler>
      unfound_;  // says that there is none, or finds one that came later
  std::atomic<std::size_t> expected_{1};
  std::atomic<Choice*> choices_{nullptr};
};

}  // namespace cukiln
