// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/cancel_token.hpp>
#include <cukiln/device.hpp>
#include <cukiln/digest.hpp>
#include <cukiln/explain.hpp>
#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/kernel_info.hpp>
#include <cukiln/kernel_table.hpp>
#include <cukiln/log.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>
#include <cukiln/stats.hpp>
#include <cukiln/store.hpp>

namespace cukiln {

class LoaderServices;

inline namespace v0 {

/// Where NVRTC and CUDA's headers may be, besides what this process has loaded and the system's own
/// folders. Searched in the order of NVIDIA's cuda-pathfinder. Empty: not searched.
struct CudaPlaces {
  std::vector<std::string> site_packages;  ///< of a running Python: NVIDIA's wheels
  std::string virtual_env;                 ///< `$VIRTUAL_ENV`
  std::string conda_prefix;                ///< `$CONDA_PREFIX`
  std::string cuda_home;                   ///< `$CUDA_HOME`, else `$CUDA_PATH`
  std::string home;                        ///< `$HOME`, for wheels of `pip install --user`
  std::vector<std::string> library_path;   ///< `$LD_LIBRARY_PATH`
};

/// How a loader finds the compiler and the driver, and its limits. Nothing here reads the
/// environment; `Settings::load()` (settings.hpp) does, for hosts that want it.
struct LoaderOptions {
  std::string nvrtc_library;  ///< a path to open instead of searching
  std::string cuda_library;   ///< likewise, for libcuda
  std::string worker;         ///< the compile worker; empty: beside the library, libexec
  std::vector<std::string> include_path;  ///< folders with CUDA's own headers, before searching
  CudaPlaces cuda_places;                 ///< where to search, besides the system's own folders
  bool in_process_compile = false;        ///< never spawn; results stay in memory (unobserved)
  bool offline = false;                   ///< never compile: a miss is not_found
  unsigned jobs = 0;                      ///< compiles at once; 0: one per core
  std::chrono::milliseconds compile_timeout{300'000};  ///< wall clock of one compile
  std::uint64_t compile_memory_bytes = 8ull << 30;     ///< address space of one worker; 0: no limit
  std::string record;  ///< an existing file; what is asked for is appended (`cukiln record`)
  LogSink log;
};

enum class Outcome { hit, compiled, failed, missing };
CUKILN_API const char* name_of(Outcome outcome) noexcept;

/// A measured time; `count()` gives milliseconds with their fraction.
using Milliseconds = std::chrono::duration<double, std::milli>;

/// What one module (one source set, one target) cost, and why.
struct ModuleReport {
  std::string name;
  std::string source;  ///< the first source's path as given
  Target target;
  CacheKey key;  ///< all zero when there is none (failed, missing)
  Outcome outcome = Outcome::missing;
  std::string reason;      ///< `in the store`, `not stored`, `header changed: inc/0/tile.cuh`, …
  std::string not_stored;  ///< why a result was not written; empty: it was, or it was a hit
  /// With `not_stored`: the store should have taken it and could not. False for what is never
  /// stored
  /// (`__TIME__`, an unobserved compile), and for a store that is switched off.
  bool store_refused = false;
  std::vector<std::string> dropped_flags;  ///< host-only nvcc flags that had no effect
  Milliseconds elapsed{0};                 ///< wall time for this module, waiting included
  Milliseconds load_time{0};               ///< of it, in the driver
  std::uint64_t cubin_bytes = 0;
  std::vector<KernelInfo> kernels;
  std::string log;        ///< the compiler's warnings
  Result<void> status;    ///< the error when outcome is failed or missing
  std::size_t index = 0;  ///< its place in PreloadReport::modules
};

struct PreloadReport {
  std::vector<ModuleReport> modules;  ///< in the manifest's order, a target after the other
  std::size_t hits = 0;
  std::size_t compiled = 0;
  std::size_t failed = 0;   ///< failed and missing
  Milliseconds elapsed{0};  ///< wall time of the whole call
};

/// Called after every module, from one of the preload's threads, one call at a time. What it throws
/// is caught and logged; it is not called again then, and the preload goes on.
using Progress = std::function<void(std::size_t done, std::size_t total, const ModuleReport& last)>;

struct PreloadOptions {
  std::vector<int> devices;        ///< ordinals; empty: all
  bool load = true;                ///< false: fill the store only; no driver needed
  bool keep_going = false;         ///< true: failures are in the report and preload itself succeeds
  Stream capture_guard = nullptr;  ///< a stream of the host's: refused while it captures
  std::optional<CancelToken> cancel;  ///< ends this call's compiles; what was done stays
};

/// After `seal()`, what a compile or a load does.
enum class SealPolicy {
  fail,  ///< error `sealed`
  warn,  ///< is done, logged and counted in Stats::sealed_violations
};

/// The façade: from a ModuleSpec to kernels that are ready to launch.
///
/// Lifetime: the Store must outlive it, and it must outlive every Kernel. A process may have
/// several. A move invalidates no Kernel; the moved-from object may only be destroyed or assigned
/// to.
/// Threads: every member may be called concurrently, except for destructor and move.
/// Fork: a child may use it, whatever other threads of the parent were doing; the child starts its
/// own workers and opens store and driver again. A callback (log, progress) may fork if its child
/// calls exec or exit and does not return from the callback.
/// Capture: a load while a stream captures would invalidate the capture. It is refused with
/// invalid_argument if `capture_guard` captures, or if the legacy stream reports a capture (error
/// 906). Captures of other streams cannot be detected.
class CUKILN_API KernelLoader {
 public:
  /// Opens neither compiler nor driver. Errors: internal (no memory).
  static Result<KernelLoader> create(Store& store, LoaderOptions options = {});
  ~KernelLoader();
  KernelLoader(KernelLoader&&) noexcept;
  KernelLoader& operator=(KernelLoader&&) noexcept;

  /// Makes every module of the manifest ready: hits load, misses compile, in parallel, on every
  /// chosen device, completely (whatever CUDA_MODULE_LOADING says).
  /// Errors: the first failure with its module's name and log, after all others were done.
  Result<PreloadReport> preload(const Manifest& manifest, const PreloadOptions& options = {},
                                const Progress& progress = {});

  /// The same on a thread that ends with the call. The future's destructor waits for it: cancel
  /// `options.cancel` to wait no longer than a load takes. The loader must outlive the future.
  std::future<Result<PreloadReport>> preload_async(Manifest manifest, PreloadOptions options = {},
                                                   Progress progress = {});

  /// Compiles, or finds, one module for each of its targets; loads nothing.
  Result<std::vector<ModuleReport>> compile(const ModuleSpec& spec,
                                            const std::optional<CancelToken>& cancel = {});

  /// The cubin of a key that `compile` or `preload` reported. Errors: not_found.
  Result<std::string> cubin(const CacheKey& key);

  /// One kernel of one module, compiled and loaded if it is not yet. Empty `kernel`: the only one.
  Result<Kernel> get(const ModuleSpec& spec, std::string_view kernel = {},
                     const std::optional<CancelToken>& cancel = {});

  /// Unloads the module of a key that `preload` reported, from every device, and empties its ids
  /// and names in `kernels()`; other ids stay as they are. Loaded again, it gets new ids. The host
  /// sees to it that no Kernel of it is in use, in no stream and in no graph. Errors: not_found (no
  /// loaded module has this key).
  Result<void> unload(const CacheKey& key);

  /// In the shape of PyTorch's `cpp_extension.load`: nvcc's flag spellings are taken. The module's
  /// kernels are in `kernels()` as `name/kernel`. A second call with the same arguments is cheap.
  Result<void> get_cuda_module(const std::string& name, const std::vector<std::string>& sources,
                               const std::vector<std::string>& flags = {});

  /// From here on a compile or a load is an error, or a counted warning.
  void seal(SealPolicy policy = SealPolicy::fail) noexcept;
  bool sealed() const noexcept;

  const KernelTable& kernels() const noexcept;

  /// The visible devices, on which kernels are loaded. The first call opens the driver; the list
  /// stays as it was then. Errors: driver, incompatible.
  Result<std::vector<DeviceInfo>> devices();

  /// A function of the driver that this loader opened, by its exported name (`cuMemAlloc_v2`), for
  /// hosts that link no libcuda either. Never null. Errors: driver, incompatible (not in it).
  Result<void*> driver_function(const char* name);
  /// What the driver says of a CUresult: "`what` failed: CUDA_ERROR_INVALID_VALUE (1): …", of code
  /// driver. Not for the hot path.
  Error driver_error(std::string_view what, int result);

  Result<Explanation> explain(const ModuleSpec& spec, Target target);
  Result<Explanation> explain(const CacheKey& was, const CacheKey& now);
  Stats stats() const;

  /// Makes compiles in progress, and later ones, end with `timeout`, until `resume()`.
  void cancel() noexcept;
  void resume() noexcept;

  struct Impl;

 private:
  friend class cukiln::LoaderServices;
  explicit KernelLoader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace cukiln
