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

/// Has cukilnd compile, and compiles here where it is missing, hung, busy or cannot: what it is
/// asked for, it compiles once for all processes of the host. The calling thread answers its
/// questions about files, so that it opens nothing of anyone's.
class DaemonCompiler final : public Compiler {
 public:
  struct Options {
    std::shared_ptr<wire::DaemonLink> link;
    /// Whether the store of whoever sent this greeting is this process's own.
    std::function<bool(const wire::Greeting&)> shares_store;
    Logger log;
  };
  DaemonCompiler(Options options, std::unique_ptr<NvrtcCompiler> here)
      : options_(std::move(options)), here_(std::move(here)) {}

  Result<Toolchain> toolchain() override { return here_->toolchain(); }
  void hint_upcoming(std::size_t compiles) override { here_->hint_upcoming(compiles); }
  std::vector<std::string> toolkit_folders() override { return here_->toolkit_folders(); }
  bool single_flight() const noexcept override {
    return options_.link->available() || options_.link->hung();
  }

  /// Errors: as NvrtcCompiler's; io where a daemon is required and there is none.
  Result<CompileOutcome> compile(const CompileJob& job) override;

 private:
  struct Attempt;
  /// Why the daemon does not do it.
  struct NotDone {
    std::string why;
    bool later = false;  ///< it may when it is asked again
  };
  /// Nothing: see `not_done`.
  std::optional<Result<CompileOutcome>> ask(const CompileJob& job, NotDone& not_done);

  const Options options_;
  const std::unique_ptr<NvrtcCompiler> here_;
};

}  // namespace cukiln
