// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "addons/nvrtc/nvrtc_functions.hpp"
#include "addons/nvrtc/program_request.hpp"
#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"
#include "core/compile/compile_job.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/store.hpp>

namespace cukiln::dropin {

/// What a library in the place of another one has of a process: store and loader, which its first
/// use opens with the settings of the environment, and the report for `cukiln run`. Threads: safe.
class DropinStore {
 public:
  DropinStore(std::string nvrtc, const char* report);

  /// Appends a line to the report: what became of a program that a library made.
  void report(std::string_view what, std::int64_t microseconds, const void* caller,
              std::string_view why);

  /// Closes the store, as at the end of the process. What is compiled later is not stored.
  void close() noexcept;

 protected:
  struct Opened {
    Store store;
    KernelLoader loader;
  };
  Result<std::shared_ptr<Opened>> open();

  /// Null if there is none. Errors: io (closed).
  Result<std::shared_ptr<Opened>> find();

 private:
  const std::string nvrtc_;      ///< empty: the one of the settings
  const std::string report_;     ///< its path
  ProcessLocal<Mutex> opening_;  ///< held while the store is opened, which a fork does not wait for
  Mutex mutex_;
  std::shared_ptr<Opened> opened_ CUKILN_GUARDED_BY(mutex_);
  bool is_closed_ CUKILN_GUARDED_BY(mutex_) = false;
};

/// What all programs of a process share. Threads: safe.
class Host : public DropinStore {
 public:
  Host(const RealNvrtc& real, const char* report);

  const RealNvrtc& nvrtc() const noexcept { return real_; }
  /// The functions of the real NVRTC, which is opened for them.
  const NvrtcFunctions& real() const noexcept { return real_.functions(); }
  /// The target of a compile without --gpu-architecture; asks the real NVRTC.
  int default_capability() const noexcept;

  /// As compile_program, with the loader of the process.
  Result<ProgramResult> compile(const ProgramSpec& spec, NvrtcFailure& failure);

  /// Returns the PTX of a program that was compiled to a cubin, and stores the entries of one that
  /// was compiled here. Nothing if it is not known, or shows a hidden folder.
  std::optional<SharedBytes> ptx_of(const PtxSource& source);

 private:
  const RealNvrtc& real_;
};

}  // namespace cukiln::dropin
