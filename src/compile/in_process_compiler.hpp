// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "compile/compiler.hpp"
#include "compile/nvrtc_library.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

/// Runs NVRTC in this process, with the real include folders, for hosts that may not start
/// processes. NVRTC reads files itself, so the dependency set is unknown: `observed` is false, and
/// results are kept in memory only. A compile can be neither stopped nor limited, and takes no
/// lock. A header in memory is found by the path that the module gives it, from every file, and not
/// by a path relative to another header.
///
/// NVRTC has global state and destructors of its own, which are known to crash when the process
/// exits after a first use on another thread. Hence it is opened once and never closed.
class InProcessCompiler final : public Compiler {
 public:
  explicit InProcessCompiler(NvrtcSearch search);
  ~InProcessCompiler() override;

  Result<Toolchain> toolchain() override;
  Result<std::vector<Target>> targets() override;
  std::vector<std::string> toolkit_folders() override;
  /// Ignores the job's timeout, `cancelled` and guard.
  Result<CompileOutcome> compile(const CompileJob& job) override;

 private:
  struct Opened;
  Result<const Opened*> open();

  const NvrtcSearch search_;
  Mutex mutex_;  // not held while compiling: compiles run concurrently
  std::unique_ptr<Opened> opened_ CUKILN_GUARDED_BY(mutex_);  // constant once set
};

}  // namespace cukiln
