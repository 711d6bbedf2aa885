// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/logger.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "wire/daemon_link.hpp"

namespace cukiln {

/// Compiles in cukilnd, which compiles each request once for all processes of the host. Falls back
/// to a compile in this process if the daemon is missing, hung, busy or unable. The calling thread
/// serves the files that the daemon's worker asks for, so that the daemon opens no user's files.
/// Links run in a worker of this process: their parts, which take the time, are compiles of their
/// own.
class DaemonCompiler final : public Compiler {
 public:
  struct Options {
    std::shared_ptr<wire::DaemonLink> link;
    /// True if the daemon that sent this greeting uses the same store as this process.
    std::function<bool(const wire::Greeting&)> shares_store;
    Logger log;
  };
  DaemonCompiler(Options options, std::unique_ptr<NvrtcCompiler> fallback)
      : options_(std::move(options)), fallback_(std::move(fallback)) {}

  Result<Toolchain> toolchain() override { return fallback_->toolchain(); }
  Result<Toolchain> linker() override { return fallback_->linker(); }
  Result<std::vector<Target>> targets() override { return fallback_->targets(); }
  void hint_upcoming(std::size_t compiles) override { fallback_->hint_upcoming(compiles); }
  std::vector<std::string> toolkit_folders() override { return fallback_->toolkit_folders(); }
  bool single_flight() const noexcept override {
    return options_.link->available() || options_.link->hung();
  }

  /// Errors: as NvrtcCompiler's; io if a daemon is required and none compiled it.
  Result<CompileOutcome> compile(const CompileJob& job) override;

 private:
  struct Attempt;
  /// Why the daemon did not compile a request.
  struct Declined {
    std::string why;
    bool retry = false;  ///< a later attempt may succeed
  };
  /// Returns nothing if the daemon did not compile it; `declined` says why.
  std::optional<Result<CompileOutcome>> compile_in_daemon(const CompileJob& job,
                                                          Declined& declined);

  const Options options_;
  const std::unique_ptr<NvrtcCompiler> fallback_;
};

}  // namespace cukiln
