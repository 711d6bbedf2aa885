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
#include <utility>
#include <vector>

#include <cukiln/cancel_token.hpp>
#include <cukiln/device.hpp>
#include <cukiln/digest.hpp>
#include <cukiln/event.hpp>
#include <cukiln/explain.hpp>
#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/kernel_info.hpp>
#include <cukiln/kernel_table.hpp>
#include <cukiln/log.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/module.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>
#include <cukiln/stats.hpp>
#include <cukiln/store.hpp>
#include <cukiln/variable_info.hpp>

namespace cukiln {

class LoaderServices;

inline namespace v0 {

/// Places that may have NVRTC and CUDA's headers, in addition to the libraries that this process
/// has loaded and the system's folders. They are searched in the order of NVIDIA's cuda-pathfinder;
/// an empty member is skipped.
struct CudaPlaces {
  // schema: CudaPlaces. Written by src/schema/generate.py
  std::vector<std::string> site_packages;  ///< folders of a Python with NVIDIA's wheels
  std::string virtual_env;                 ///< `$VIRTUAL_ENV`
  std::string conda_prefix;                ///< `$CONDA_PREFIX`
  std::string cuda_home;                   ///< `$CUDA_HOME`, else `$CUDA_PATH`
  std::string home;                        ///< `$HOME`, for wheels of `pip install --user`
  std::vector<std::string> library_path;   ///< `$LD_LIBRARY_PATH`
  // end of schema
};

/// Where a loader finds compiler and driver, and its limits. A loader does not read the
/// environment; hosts that want that call `Settings::load()` (settings.hpp).
struct LoaderOptions {
  // schema: LoaderOptions. Written by src/schema/generate.py
  std::string nvrtc_library;  ///< a path to open instead of searching
  std::string cuda_library;   ///< a path of libcuda to open instead of searching
  std::string worker;         ///< path of the compile worker; empty: beside the library, libexec
  std::vector<std::string> include_path;  ///< folders with CUDA's headers, tried before the search
  CudaPlaces cuda_places;                 ///< where to search, besides the system's own folders
  bool offline = false;                   ///< never compile: a miss is an error, not_found
  std::uint32_t jobs = 0;  ///< concurrent compiles; 0: what affinity, cgroups and memory allow
  std::chrono::milliseconds compile_timeout{300'000};  ///< wall-clock limit of one compile
  std::uint64_t compile_memory_bytes = 8ull << 30;     ///< address space limit of a worker; 0: none
  /// of all workers together: a compile that would exceed it waits. 0: what this machine and its
  /// cgroups have
  std::uint64_t memory_bytes = 0;
  std::string record;  ///< an existing file to which requests are appended (`cukiln record`)
  LogSink log;
  /// a profiler's NVTX library, which gets ranges of preloads, compiles and loads; opened once in
  /// the process. Empty: none. `Settings::load()` has `$NVTX_INJECTION64_PATH`
  std::string nvtx_library;
  /// a loader's: hits, misses, compiles, loads, and what is needed after `seal()`; a store's:
  /// evictions and damage, in calls of a loader over it
  EventSink events;
  // end of schema
};

/// How a module was obtained.
enum class Outcome {
  hit,
  compiled,
  failed,
  missing,  ///< not in the store, and compiling is forbidden (offline)
};
CUKILN_API const char* name_of(Outcome outcome) noexcept;

/// The outcome of one module (one set of sources) for one target.
struct ModuleReport {
  // schema: ModuleReport. Written by src/schema/generate.py
  std::string name;
  std::string source;  ///< the first source's path as given
  Target target;
  CacheKey key;  ///< all zero when there is none (failed, missing)
  /// how it went; `error` is set if it is failed or missing, else not
  Outcome outcome = Outcome::missing;
  std::string reason;  ///< `in the store`, `not in the store`, `header changed: inc/0/tile.cuh`, …
  std::optional<Error> error;  ///< of a failed or missing module, with the compiler's log
  /// why a compiled result is not stored. `io`: the store should have kept it and could not;
  /// `incompatible`: it is never stored (`__TIME__`, an unobserved compile), or the store is
  /// disabled
  std::optional<Error> not_stored;
  std::vector<std::string> dropped_flags;  ///< nvcc flags for host code, which had no effect
  Milliseconds elapsed{0};                 ///< wall time, waits included
  Milliseconds load_time{0};               ///< part of it that was spent in the driver
  std::uint64_t cubin_bytes = 0;
  std::vector<KernelInfo> kernels;
  std::string log;        ///< the compiler's warnings
  std::size_t index = 0;  ///< in PreloadReport::modules
  /// the most memory that its compile used; 0: this process has not compiled it, or could not
  /// measure it
  std::uint64_t peak_bytes = 0;
  std::vector<VariableInfo> variables;  ///< those among the names; no part of `kernels`
  // end of schema
};

/// Where the time of a preload went: wall times, one after the other, which add up to nearly all of
/// `PreloadReport::elapsed`. While a module is compiled, fetches of others are part of `compile`.
struct PreloadPhases {
  // schema: PreloadPhases. Written by src/schema/generate.py
  Milliseconds find{0};     ///< NVRTC, its identity, and the devices
  Milliseconds hash{0};     ///< reading sources and making requests
  Milliseconds look_up{0};  ///< checking dependencies and reading entries
  Milliseconds fetch{0};    ///< asking remote stores, while nothing is compiled
  Milliseconds compile{0};  ///< compiling here, or waiting for another process that does
  Milliseconds load{0};     ///< loading on the devices
  // end of schema
};

/// The outcome of a preload.
struct PreloadReport {
  // schema: PreloadReport. Written by src/schema/generate.py
  std::vector<ModuleReport> modules;  ///< in the manifest's order; one for each target
  std::size_t hits = 0;
  std::size_t compiled = 0;
  std::size_t failed = 0;   ///< failed or missing
  Milliseconds elapsed{0};  ///< wall time of the call
  PreloadPhases phases;
  // end of schema
};

/// Called when a module is done. Threads: called from a thread of the preload, never concurrently.
/// An exception is caught and logged; the preload continues without further calls.
using Progress = std::function<void(std::size_t done, std::size_t total, const ModuleReport& last)>;

struct PreloadOptions {
  // schema: PreloadOptions. Written by src/schema/generate.py
  std::vector<int> devices;           ///< ordinals of the devices to load on; empty: all
  bool load = true;                   ///< false: only fill the store; needs no driver
  bool keep_going = false;            ///< true: the call succeeds, and failures are in the report
  Stream capture_guard = nullptr;     ///< the call is refused while this stream captures
  std::optional<CancelToken> cancel;  ///< cancels this call; modules that are done stay
  // end of schema
};

/// What happens to a compile or a load after `seal()`.
enum class SealPolicy {
  fail,  ///< it is an error, `sealed`
  warn,  ///< it is done, logged, and counted in Stats::sealed_violations
};

struct WatchOptions {
  // schema: WatchOptions. Written by src/schema/generate.py
  bool after_seal = false;  ///< reload after `seal()` too
  // end of schema
};

/// A thread that reloads edited modules (`KernelLoader::watch`). It ends, and a compile of it is
/// cancelled, when this is destroyed or the loader is, whichever is first.
/// Threads: one at a time, none while the loader is destroyed, and no callback of the loader.
class Watch {
 public:
  Watch() noexcept = default;  ///< watches nothing
  using Handle = std::unique_ptr<void, void (*)(void*)>;
  explicit Watch(Handle handle) noexcept : handle_(std::move(handle)) {}

  /// Ends it now, as the destructor does.
  void end() noexcept { handle_.reset(); }

 private:
  Handle handle_{nullptr, [](void*) {}};
};

/// Compiles, caches and loads modules, and finds their kernels: the main class of the library.
///
/// Lifetime: the Store must outlive it, and it must outlive every Kernel. A process may have
/// several. A move invalidates no Kernel; the moved-from object may only be destroyed or assigned
/// to.
/// Threads: every member may be called concurrently, except for destructor and move. A calling
/// thread needs a stack of 64 KiB, and what its callbacks take.
/// Fork: a child may use it, whatever other threads of the parent were doing; the child starts its
/// own workers and opens store and driver again. A callback (log, progress) may fork if its child
/// calls exec or exit and does not return from the callback.
/// Capture: a load while a stream captures would invalidate the capture. It is refused with
/// invalid_argument if the stream PreloadOptions::capture_guard captures, or if the legacy stream
/// reports a capture (error 906). Captures of other streams cannot be detected.
class CUKILN_API KernelLoader {
 public:
  /// Creates a loader over a store. Opens neither compiler nor driver. Errors: internal.
  static Result<KernelLoader> create(Store& store, LoaderOptions options = {});
  ~KernelLoader();
  KernelLoader(KernelLoader&&) noexcept;
  KernelLoader& operator=(KernelLoader&&) noexcept;

  /// Compiles the modules of a manifest that are not in the store, in parallel, and loads all of
  /// them on the chosen devices, completely whatever CUDA_MODULE_LOADING says.
  /// Errors: the error of the first module that failed, with its name and log, after all other
  /// modules are done; with `keep_going` failures are in the report only.
  Result<PreloadReport> preload(const Manifest& manifest, const PreloadOptions& options = {},
                                const Progress& progress = {});

  /// As `preload`, on a thread of its own. The future's destructor waits for the call. To end the
  /// call early, cancel `options.cancel`; a load in progress is still completed. The loader must
  /// outlive the future but may be moved.
  std::future<Result<PreloadReport>> preload_async(Manifest manifest, PreloadOptions options = {},
                                                   Progress progress = {});

  /// Finds or compiles a module for each of its targets; loads nothing. Failures are in the
  /// reports.
  Result<std::vector<ModuleReport>> compile(const ModuleSpec& spec,
                                            const std::optional<CancelToken>& cancel = {});

  /// Returns the cubin of a key that `compile` or `preload` reported. Errors: not_found, io.
  Result<std::string> cubin(const CacheKey& key);

  /// Returns a kernel of a module, which is compiled and loaded if it is not yet. `kernel` may be
  /// empty if the module has one kernel. Errors: not_found (no such kernel), invalid_argument
  /// (several kernels and no name), sealed, timeout, compile_failed with the log, driver.
  Result<Kernel> get(const ModuleSpec& spec, std::string_view kernel = {},
                     const std::optional<CancelToken>& cancel = {});

  /// Returns a module, which is compiled and loaded if it is not yet; for its variables. Of several
  /// targets it is the first that a device runs. Errors: as `get`.
  Result<Module> module(const ModuleSpec& spec, const std::optional<CancelToken>& cancel = {});

  /// Unloads the module with a key that `preload` reported from every device, and empties its ids
  /// and names in `kernels()`. Other ids do not change; a module that is loaded again gets new ids.
  /// Precondition: no stream or graph uses a kernel of the module. Errors: not_found (no loaded
  /// module has this key).
  Result<void> unload(const CacheKey& key);

  /// Compiles and loads a module as PyTorch's `cpp_extension.load` does, with nvcc's flags. Its
  /// kernels are in `kernels()` as `name/kernel`. A second call with the same arguments is cheap.
  /// Errors: as `preload`.
  Result<void> get_cuda_module(const std::string& name, const std::vector<std::string>& sources,
                               const std::vector<std::string>& flags = {});

  /// Reloads edited modules, for development. A thread, the only one that this library leaves in a
  /// host, waits for changes of the files that loaded modules, and those loaded later, were
  /// compiled from: sources, headers, objects, and headers that would be found first. It compiles
  /// and loads what changed, and each kernel runs its new function from its next launch on, by its
  /// handle, id and name of before, with the old function's attributes but for a cluster's size.
  /// Launches stay free of locks. A graph keeps the functions that it was captured with.
  ///
  /// Each reload is an event, EventKind::reload, and logged. It fails, and the kernels run what
  /// they ran: if the edit does not compile; if a kernel is gone or has other parameters (sizes are
  /// compared; a driver before 12.4 does not report them); if the host has the address of a
  /// variable; after `seal()`, unless `after_seal` is set; and if 64 old modules are loaded, which
  /// stay until the loader is destroyed, since launches may still run them.
  ///
  /// Not watched: modules with a text in memory, and CUDA's own headers. A change that inotify does
  /// not report (another machine's, no free watch) is found within a second. A forked child has no
  /// watch. Errors: invalid_argument (it is watched already), internal.
  [[nodiscard]] Result<Watch> watch(const WatchOptions& options = {});

  /// Makes every later compile or load an error, or a counted warning. Both say why it was needed,
  /// as `explain` does, and have the line that the manifest lacks.
  void seal(SealPolicy policy = SealPolicy::fail) noexcept;
  bool sealed() const noexcept;

  const KernelTable& kernels() const noexcept;

  /// Returns the visible devices. The first call opens the driver and fixes the list. Errors:
  /// driver, incompatible.
  Result<std::vector<DeviceInfo>> devices();

  /// Returns a driver function by its exported name (`cuMemAlloc_v2`), for hosts that do not link
  /// libcuda. Never null. Errors: driver, incompatible (the driver has no such function).
  Result<void*> driver_function(const char* name);
  /// Returns an error of code driver for a CUresult: "`what` failed: CUDA_ERROR_INVALID_VALUE (1):
  /// …". Not for the hot path.
  Error driver_error(std::string_view what, int result);

  /// Returns a blob of the store (blob_store.hpp) as it was when this loader was first asked for
  /// it, so that all that a process decides by it agrees; nothing if there is none. Bytes that
  /// `check` refuses are none, and its error is logged once. Errors: invalid_argument (kind or
  /// key).
  Result<std::optional<std::string>> fixed_blob(
      std::string_view kind, std::string_view key,
      const std::function<Result<void>(std::string_view bytes)>& check);

  /// Explains why a module hits or misses for a target, or for the family that is taken for it.
  /// Compiles nothing. Errors: invalid_argument, not_found (a source), io.
  Result<Explanation> explain(const ModuleSpec& spec, Target target);
  /// Compares two stored entries. Errors: not_found.
  Result<Explanation> explain(const CacheKey& was, const CacheKey& now);
  /// Returns the counters of this loader.
  Stats stats() const;

  /// Cancels the compiles in progress and every later one until `resume()` is called. Each returns
  /// `timeout`.
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
