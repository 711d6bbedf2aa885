// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/cancel_flags.hpp"
#include "core/compile/file_provider.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/entry_labels.hpp"
#include "core/key/file_server.hpp"

#include <cukiln/kernel_info.hpp>

namespace cukiln {

struct CompileResult;

/// The compiled sources of a request that links.
struct LinkParts {
  struct Part {
    std::string name;   ///< the source's path, virtual
    SharedBytes image;  ///< a relocatable cubin or LTO-IR
  };
  std::vector<Part> parts;          ///< in the order of the sources
  std::vector<KernelInfo> symbols;  ///< of all parts: kernels, and variables that were asked for
  DependencySet dependencies;       ///< of all parts
  bool observed = true;             ///< as CompileResult, of all parts
  bool uses_time = false;           ///< as CompileResult, of one of them
};

/// The input of a compile and its limits. Request and labels must outlive the compile.
struct CompileInput {
  const CompileRequest& request;
  std::string label;                    ///< the module's name, for errors and the lock's owner line
  const EntryLabels* labels = nullptr;  ///< to store with the result; null if it is not stored
  std::chrono::milliseconds timeout{300'000};
  CancelFlags cancelled;             ///< stop the compile when set
  std::uint64_t expected_bytes = 0;  ///< memory that it will use; 0: not known
  const LinkParts* parts = nullptr;  ///< of a request that links; else null
};

/// The reader of a compile's files: this process, through a FileServer, or another process, through
/// a FileProvider. Exactly one is set; neither is owned.
class FileSource {
 public:
  explicit FileSource(FileServer& local) noexcept : local_(&local) {}
  explicit FileSource(FileProvider& provider) noexcept : provider_(&provider) {}

  /// Null if another process reads the files.
  FileServer* local() const noexcept { return local_; }
  /// Null if this process reads the files.
  FileProvider* provider() const noexcept { return provider_; }

  /// Returns the real path of a virtual one; the virtual path itself if another process reads the
  /// files, because only that process knows real paths.
  std::string real_path(const std::string& path) const {
    return local_ != nullptr ? local_->real_path(path) : path;
  }
  /// Replaces each path in a text, as `real_path` does.
  std::string with_real_paths(ByteView text) const {
    return local_ != nullptr ? local_->with_real_paths(text) : std::string(text);
  }

 private:
  FileServer* local_ = nullptr;
  FileProvider* provider_ = nullptr;
};

/// Prevents two processes from compiling the same request (single flight). All members may be
/// empty.
struct CompileGuard {
  /// The lock file of the request; empty for no lock. This process locks it and leaves the lock to
  /// the compile worker, which frees it when this process dies, stops or hangs.
  std::string lock_path;
  /// Called with the lock held, before the compile. False if another process has stored the result
  /// in the meantime.
  std::function<bool()> still_needed;
  /// Called with the lock held, to store the result before the lock is released.
  std::function<void(const CompileResult&)> publish;
};

/// A finer category of a failed compile than ErrorCode, for metrics only.
enum class CompileFailureKind { other, out_of_memory, garbage };

/// What NVRTC itself said of a program (NvrtcProgram) that it refused.
struct NvrtcFailure {
  int code = 0;  ///< an nvrtcResult; 0: the compile failed otherwise
  std::string log;
  /// All that the compile looked at, if it would fail in the same way while that is the same: the
  /// front end found errors. Else nothing.
  std::optional<DependencySet> dependencies = {};
};

/// One call of Compiler::compile.
struct CompileJob {
  CompileInput input;
  FileSource files;
  CompileGuard guard;
  CompileFailureKind* failure_kind = nullptr;  ///< set if the compile fails; may be null
  NvrtcFailure* nvrtc_failure = nullptr;       ///< the same
};

}  // namespace cukiln
