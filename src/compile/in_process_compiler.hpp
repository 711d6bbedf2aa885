// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "compile/compiler.hpp"
#include "compile/nvrtc_library.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

/// For hosts that may not start processes: NVRTC in this process, with the real include folders. It
/// reads files itself, so what a result depends on is not known (`observed` is false: keep it in
/// memory), and a compile can be neither ended nor limited. There is no flight lock.
///
/// NVRTC has global state and destructors of its own, which are known to crash when the process
/// exits after a first use on another thread: it is opened once and never closed.
class InProcessCompiler final : public Compiler {
 public:
  explicit InProcessCompiler(NvrtcSearch search);
  ~InProcessCompiler() override;

  Result<Toolchain> toolchain() override;
  std::vector<std::string> toolkit_folders() override;
  /// `timeout`, `cancelled` and `flight_lock` have no effect.
  Result<CompileOutcome> compile(const CompileJob& job) override;

 private:
  struct Opened;
  Result<const Opened*> open();

  const NvrtcSearch search_;
  std::mutex mutex_;  // of opening; compiles run side by side
  std::unique_ptr<Opened> opened_;
};

}  // namespace cukiln
