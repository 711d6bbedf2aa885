// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "compile/file_provider.hpp"
#include "key/compile_request.hpp"
#include "key/entry_labels.hpp"
#include "key/file_server.hpp"

namespace cukiln {

struct CompileResult;

/// What is compiled, and how long it may take. Request and labels outlive the compile.
struct CompileInput {
  const CompileRequest& request;
  std::string label;                    ///< the module's name, for errors and the lock's owner line
  const EntryLabels* labels = nullptr;  ///< stored with the result; null: it is not to be stored
  std::chrono::milliseconds timeout{300'000};
  const std::atomic<bool>* cancelled = nullptr;  ///< ends the compile; null: it cannot be cancelled
};

/// Where the files of a compile are: on this host, opened by this process, or in another process
/// that a FileProvider asks. Owns neither.
class FileSource {
 public:
  explicit FileSource(FileServer& local) noexcept : local_(&local) {}
  explicit FileSource(FileProvider& provider) noexcept : provider_(&provider) {}

  /// Null: another process has the files, see `provider()`.
  FileServer* local() const noexcept { return local_; }
  /// Null: they are `local()`.
  FileProvider* provider() const noexcept { return provider_; }

  /// A virtual path as the user knows it; unchanged where the user is another process.
  std::string real_path(const std::string& path) const {
    return local_ != nullptr ? local_->real_path(path) : path;
  }
  /// The same for each path in a text.
  std::string with_real_paths(ByteView text) const {
    return local_ != nullptr ? local_->with_real_paths(text) : std::string(text);
  }

 private:
  FileServer* local_ = nullptr;
  FileProvider* provider_ = nullptr;
};

/// Keeps two processes from compiling the same. Empty: nothing does.
struct CompileGuard {
  /// The lock file of the request. Empty: no lock. The compile worker itself holds the lock, so
  /// that it ends with the worker, whatever becomes of this process and of what it forked.
  std::string lock_path;
  /// Asked with the lock held. False: another process stored the result meanwhile.
  std::function<bool()> still_needed;
  /// Called with the lock held, to store the result before the lock is released.
  std::function<void(const CompileResult&)> publish;
};

/// What is wrong with a compile that failed, as far as the error's code does not tell: for the
/// caller's counters.
enum class CompileFailureKind { other, out_of_memory, garbage };

struct CompileJob {
  CompileInput input;
  FileSource files;
  CompileGuard guard;
  CompileFailureKind* trouble = nullptr;  ///< set when the compile fails; null: not wanted
};

}  // namespace cukiln
