// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/base/logger.hpp"

namespace cukiln {

/// Ranges of NVTX, version 3, in the domain `cukiln`, for a profiler whose library attaches to this
/// process. NVTX has no library of its own: a client opens the profiler's, which puts its functions
/// into a table of the client's. Threads: safe.
class Nvtx {
 public:
  /// Opens a profiler's library once in the process, and keeps it. Null if `path` is empty, if the
  /// library cannot be used (a warning says why), or while another thread opens it.
  static const Nvtx* open(const std::string& path, const Logger& log);

  /// A range of the thread that makes it, which ends it.
  class Range {
   public:
    /// `nvtx` may be null: then it does nothing. The message is `what name`.
    Range(const Nvtx* nvtx, std::string_view what, std::string_view name);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    const Nvtx* nvtx_;
  };

 private:
  void push(const char* message) const noexcept;
  void pop() const noexcept;

  void* domain_ = nullptr;
};

}  // namespace cukiln
