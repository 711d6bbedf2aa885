// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The C interface of cukiln (C11, C++), with the rules of <cukiln/loader.hpp>.
///
///     cukiln_loader* loader = NULL;
///     if (cukiln_loader_create(NULL, &loader) != CUKILN_OK ||             // from the environment
///         cukiln_loader_preload(loader, "kernels.json", NULL, NULL) != CUKILN_OK)
///       return fail(cukiln_last_error());
///     cukiln_loader_seal(loader, CUKILN_SEAL_FAIL);
///     cukiln_kernel axpy = cukiln_loader_find(loader, "axpy");            // NULL: not there
///
/// Structs: a struct that the caller fills starts with `struct_bytes`, its sizeof; every other
/// member may stay zero, the default. Structs of one soname grow only at their end: a host built
/// with an older header works with a newer library, and an older library refuses (invalid_argument)
/// a member that is set and that it does not know. Strings: UTF-8, or the bytes of a path,
/// NUL-terminated, copied before a call returns. Threads: every function except create and destroy
/// may be called concurrently. Errors: no function throws; one that returns a code keeps its
/// message for the calling thread.

// NOLINTBEGIN(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers): C
#include <stddef.h>
#include <stdint.h>

#include <cukiln/export.hpp>

#ifdef __cplusplus
extern "C" {
#endif

/// Equal to cukiln::ErrorCode; the numbers never change.
typedef enum cukiln_code {
  CUKILN_OK = 0,
  CUKILN_INVALID_ARGUMENT = 1,  ///< the caller gave something that cannot work; nothing was changed
  CUKILN_NOT_FOUND = 2,         ///< a file, kernel, entry or library is not there
  CUKILN_COMPILE_FAILED = 3,    ///< NVRTC refused the source: see cukiln_last_error_log()
  CUKILN_INCOMPATIBLE = 4,      ///< versions or architectures do not match
  CUKILN_CORRUPT = 5,           ///< stored bytes differ from those that were written
  CUKILN_IO = 6,                ///< the operating system refused a read, a write or a lock
  CUKILN_TIMEOUT = 7,           ///< a limit in time or memory was reached, or it was cancelled
  CUKILN_SEALED = 8,            ///< a compile or a load was needed after sealing
  CUKILN_DRIVER = 9,            ///< the CUDA driver is missing or returned an error
  CUKILN_INTERNAL = 10          ///< a defect of cukiln, or no memory
} cukiln_code;

/// Returns a code's name: `compile_failed`; `ok` for 0, `unknown` for any other number. Never NULL.
CUKILN_API const char* cukiln_code_name(cukiln_code code);

/// The error of the last call in this thread that failed; successful calls do not change it. Valid
/// until the next failing call in this thread. Never NULL; empty before any error.
CUKILN_API cukiln_code cukiln_last_error_code(void);
CUKILN_API const char* cukiln_last_error(void);      ///< one sentence: given, expected, what to do
CUKILN_API const char* cukiln_last_error_log(void);  ///< the compiler's log; empty for other errors

/// Returns the version of the loaded library, `0.4.0`, which may differ from the header's.
CUKILN_API const char* cukiln_version(void);

/// A store and a loader over it: cukiln::Store and cukiln::KernelLoader.
typedef struct cukiln_loader cukiln_loader;

/// A handle to a loaded kernel: one pointer, copied freely, never freed. NULL is no kernel. Valid
/// while the loader that returned it exists and its module is not unloaded.
typedef const struct cukiln_kernel_state* cukiln_kernel;

/// CUstream and cudaStream_t; NULL is the default stream.
typedef struct CUstream_st* cukiln_stream;

typedef enum cukiln_log_level {
  CUKILN_LOG_ERROR = 0,
  CUKILN_LOG_WARN = 1,
  CUKILN_LOG_INFO = 2,
  CUKILN_LOG_DEBUG = 3
} cukiln_log_level;

/// Called from any thread that calls into cukiln, also concurrently; `message` is valid during the
/// call. It must not call back into cukiln. If it throws (C++), the message is lost.
typedef void (*cukiln_log_function)(void* user, cukiln_log_level level, const char* message);

/// cukiln::EventKind: what happened to a module, or to an entry of the store.
typedef enum cukiln_event_kind {
  CUKILN_EVENT_HIT = 0,      ///< a cubin was found; `reason` says where
  CUKILN_EVENT_MISS = 1,     ///< no tier had it; `reason` says why
  CUKILN_EVENT_COMPILE = 2,  ///< a compile ended
  CUKILN_EVENT_LOAD = 3,     ///< a module was loaded on its devices, or could not be
  CUKILN_EVENT_EVICT = 4,    ///< the store removed an entry to make room
  CUKILN_EVENT_CORRUPT = 5,  ///< the store found damage, which it removed
  CUKILN_EVENT_SEALED = 6,   ///< a compile or a load was needed after cukiln_loader_seal
  CUKILN_EVENT_RELOAD = 7    ///< a cukiln_watch replaced an edited module, or could not if `failed`
} cukiln_event_kind;

/// cukiln::Event. Created by the library and may grow: do not use its sizeof.
typedef struct cukiln_event {
  // schema: cukiln_event. Written by src/schema/generate.py
  cukiln_event_kind kind;
  const char* module;   ///< its name; empty for `corrupt`
  const char* target;   ///< `sm_100a`; empty for CORRUPT
  const char* key;      ///< 64 hex digits; empty when there is none, or it is not known
  const char* reason;   ///< as in cukiln_module_report; the error's message if `failed`
  int failed;           ///< 1: the compile, the load, or the reload failed
  double milliseconds;  ///< of a compile, waits included, of a load, and of a reload
  // end of schema
} cukiln_event;

/// Called in the thread in which the event happened (the caller's, one of a preload's, or a
/// cukiln_watch's), before the call that caused it returns, and concurrently if several threads
/// have events. The library holds no lock meanwhile, and the function may call the loader. `event`
/// and what it points to are valid during the call. If it throws (C++), the event is lost.
/// cukiln_loader_find and cukiln_loader_at have no events.
typedef void (*cukiln_event_function)(void* user, const cukiln_event* event);

/// Whether cukilnd, the host's compile daemon, is asked before this process compiles.
typedef enum cukiln_daemon_use {
  CUKILN_DAEMON_DEFAULT = 0,  ///< the environment's, if it is read; else automatic
  CUKILN_DAEMON_AUTO = 1,     ///< if one answers; a missing, hung or incompatible one costs
                              ///< milliseconds
  CUKILN_DAEMON_OFF = 2,
  CUKILN_DAEMON_REQUIRE = 3  ///< this process never compiles: without a daemon a miss is an error
} cukiln_daemon_use;

/// cukiln::StoreOptions and cukiln::LoaderOptions.
typedef struct cukiln_options {
  size_t struct_bytes;
  // schema: cukiln_options. Written by src/schema/generate.py
  /// 1: start from the environment and the configuration files (see cukiln::Settings); members that
  /// are set take precedence
  int from_environment;
  /// absolute; NULL: `$XDG_CACHE_HOME/cukiln`, else `~/.cache/cukiln`
  const char* store_directory;
  const char* system_directory;  ///< read-only tier below; NULL: /var/cache/cukiln; empty: none
  /// cap of the store, above which the least recently used entries are evicted; 0: 2 GiB
  uint64_t max_bytes;
  int memory_only;                ///< 1: store nothing on disk
  int allow_network_file_system;  ///< 1: use one, where SQLite's WAL is unsafe
  int daemon;                     ///< a cukiln_daemon_use; another number is an error
  const char* daemon_socket;      ///< NULL: this user's daemon, else the system's
  /// public keys, `name:base64`: entries that they signed are misses
  const char* const* revoked_keys;
  size_t revoked_key_count;
  /// `name:base64 modules=PREFIX`: an entry that one of them signed is a miss unless the module's
  /// name begins with PREFIX
  const char* const* scoped_keys;
  size_t scoped_key_count;
  const char* nvrtc_library;  ///< a path to open instead of searching
  const char* cuda_library;   ///< a path of libcuda to open instead of searching
  const char* worker;  ///< absolute; the compile worker; NULL: beside the library, then in libexec
  const char* const* include_path;  ///< folders with CUDA's headers, tried before the search
  size_t include_path_count;
  const char* const* site_packages;  ///< folders of a Python with NVIDIA's wheels
  size_t site_packages_count;
  const char* virtual_env;          ///< `$VIRTUAL_ENV`
  const char* conda_prefix;         ///< `$CONDA_PREFIX`
  const char* cuda_home;            ///< `$CUDA_HOME`, else `$CUDA_PATH`
  const char* home;                 ///< `$HOME`, for wheels of `pip install --user`
  const char* const* library_path;  ///< `$LD_LIBRARY_PATH`
  size_t library_path_count;
  int offline;                  ///< 1: never compile; a miss is CUKILN_NOT_FOUND
  uint32_t jobs;                ///< concurrent compiles; 0: what affinity, cgroups and memory allow
  uint32_t compile_timeout_ms;  ///< wall-clock limit of one compile; 0: 300,000
  uint64_t compile_memory_bytes;  ///< address space of one worker; 0: 8 GiB; UINT64_MAX: no limit
  /// of all workers together: a compile that would exceed it waits. 0: what this machine and its
  /// cgroups have; UINT64_MAX: no limit
  uint64_t memory_bytes;
  const char* record;       ///< an existing file to which requests are appended (`cukiln record`)
  cukiln_log_function log;  ///< NULL: nothing is logged
  void* log_user;
  /// a profiler's NVTX library, which gets ranges of preloads, compiles and loads; opened once in
  /// the process. NULL: `$NVTX_INJECTION64_PATH` if the environment is read, else none
  const char* nvtx_library;
  cukiln_event_function events;  ///< NULL: no events, which cost nothing then
  void* events_user;
  // end of schema
} cukiln_options;

/// Opens a store and creates a loader. `options` NULL: from the environment. If the store cannot be
/// written, the loader keeps kernels in memory only and logs why; that is no error. `*loader` is
/// NULL after an error.
CUKILN_API cukiln_code cukiln_loader_create(const cukiln_options* options, cukiln_loader** loader);

/// Destroys a loader and invalidates its kernels. No call of the loader may be in progress. NULL is
/// ignored.
CUKILN_API void cukiln_loader_destroy(cukiln_loader* loader);

typedef enum cukiln_outcome {
  CUKILN_HIT = 0,
  CUKILN_COMPILED = 1,
  CUKILN_FAILED = 2,
  CUKILN_MISSING = 3  ///< not in the store, and compiling is forbidden
} cukiln_outcome;

/// cukiln::KernelInfo: a kernel of a cubin and the resources it uses.
typedef struct cukiln_kernel_info {  // never grows: it is used in arrays
  // schema: cukiln_kernel_info. Written by src/schema/generate.py
  /// `amax_gsa`, or a name expression in the canonical spelling: `ns::k<float, 4>`, without a
  /// leading `&`
  const char* name;
  const char* lowered;    ///< the symbol in the cubin
  uint32_t registers;     ///< per thread
  uint32_t shared_bytes;  ///< static shared memory per block
  uint32_t local_bytes;   ///< stack frame per thread
  uint32_t spill_bytes;   ///< spill stores and loads per thread
  // end of schema
} cukiln_kernel_info;

/// cukiln::VariableInfo: a `__device__` or `__constant__` variable among a module's names.
typedef struct cukiln_variable_info {  // never grows: it is used in arrays
  // schema: cukiln_variable_info. Written by src/schema/generate.py
  const char* name;     ///< in the canonical spelling: `ns::table<float>`, without `&`
  const char* lowered;  ///< the symbol in the cubin
  uint64_t size_bytes;
  int is_constant;  ///< 1: `__constant__`
  // end of schema
} cukiln_variable_info;

/// cukiln::ModuleReport. Created by the library and may grow: do not use its sizeof.
typedef struct cukiln_module_report {
  // schema: cukiln_module_report. Written by src/schema/generate.py
  const char* name;
  const char* source;      ///< the first source's path as given
  const char* target;      ///< `sm_100a`
  const char* key;         ///< 64 hex digits; empty when there is none (failed, missing)
  cukiln_outcome outcome;  ///< how it went; `error` is set if it is failed or missing, else not
  const char* reason;  ///< `in the store`, `not in the store`, `header changed: inc/0/tile.cuh`, …
  const char* error;   ///< the error's message; empty on success
  cukiln_code error_code;  ///< CUKILN_OK, or that of the error
  const char* not_stored;  ///< why a compiled result is not stored; else empty
  /// CUKILN_IO: the store should have kept the result and could not; CUKILN_INCOMPATIBLE: it is
  /// never stored, or the store is disabled; else CUKILN_OK
  cukiln_code not_stored_code;
  const char* const* dropped_flags;  ///< nvcc flags for host code, which had no effect
  size_t dropped_flag_count;
  double milliseconds;       ///< wall time of the lookup or compile, waits included
  double load_milliseconds;  ///< part of `milliseconds` that was spent in the driver
  uint64_t cubin_bytes;
  const cukiln_kernel_info* kernels;
  size_t kernel_count;
  const char* log;  ///< the compiler's log: of the error, else its warnings
  size_t index;     ///< in the manifest's order, targets in order within a module
  /// the most memory that its compile used; 0: this process has not compiled it, or could not
  /// measure it
  uint64_t peak_bytes;
  const cukiln_variable_info* variables;  ///< those among the names; no part of `kernels`
  size_t variable_count;
  // end of schema
} cukiln_module_report;

/// Called when a module is done, from a thread of the preload, never concurrently. `last` and what
/// it points to are valid during the call. It must not call back into the same loader.
typedef void (*cukiln_progress_function)(void* user, size_t done, size_t total,
                                         const cukiln_module_report* last);

/// cukiln::CancelToken: cancels the calls that it was passed to, before or while they run, from any
/// thread. It stays cancelled. It may be destroyed while they run.
typedef struct cukiln_cancel_token cukiln_cancel_token;
CUKILN_API cukiln_cancel_token* cukiln_cancel_token_create(void);  ///< NULL: out of memory
CUKILN_API void cukiln_cancel_token_cancel(cukiln_cancel_token* token);
CUKILN_API void cukiln_cancel_token_destroy(cukiln_cancel_token* token);

/// cukiln::PreloadOptions.
typedef struct cukiln_preload_options {
  size_t struct_bytes;
  // schema: cukiln_preload_options. Written by src/schema/generate.py
  const int* devices;  ///< ordinals; none: every visible device
  size_t device_count;
  const char* const* targets;  ///< `sm_100a`; none: what the manifest says
  size_t target_count;
  int no_load;                  ///< 1: only fill the store; needs no driver
  int keep_going;               ///< 1: the call succeeds, and failures are in the report
  cukiln_stream capture_guard;  ///< the call is refused while this stream captures
  cukiln_progress_function progress;
  void* progress_user;
  const char* const* modules;  ///< names of the manifest's modules; none: all of them
  size_t module_count;
  const cukiln_cancel_token* cancel;  ///< cancels this call with CUKILN_TIMEOUT; NULL: none
  // end of schema
} cukiln_preload_options;

/// cukiln::PreloadReport, with its phases: wall times, one after the other.
typedef struct cukiln_preload_report {
  size_t struct_bytes;
  // schema: cukiln_preload_report. Written by src/schema/generate.py
  size_t hits;
  size_t compiled;
  size_t failed;                ///< failed or missing
  double milliseconds;          ///< wall time of the call
  double find_milliseconds;     ///< NVRTC, its identity, and the devices
  double hash_milliseconds;     ///< reading sources and making requests
  double look_up_milliseconds;  ///< checking dependencies and reading entries
  double fetch_milliseconds;    ///< asking remote stores, while nothing is compiled
  double compile_milliseconds;  ///< compiling here, or waiting for another process that does
  double load_milliseconds;     ///< loading on the devices
  // end of schema
} cukiln_preload_report;

/// Compiles the modules of a manifest that are not in the store, in parallel, and loads all of them
/// on the chosen devices. `manifest` is the path of a file. `options` and `report` may be NULL; a
/// report is filled in on success. Errors: not_found, io, invalid_argument (the manifest); else the
/// error of the first module that failed, with its name and log, after all other modules are done;
/// with `keep_going` failures are in the report only. For the kernels that come with cukiln see
/// cukiln_nvfp4_preload in <cukiln/nvfp4/nvfp4.h>.
CUKILN_API cukiln_code cukiln_loader_preload(cukiln_loader* loader, const char* manifest,
                                             const cukiln_preload_options* options,
                                             cukiln_preload_report* report);

/// One source: a file, or text in memory when `text` is set (`path` is then its name).
typedef struct cukiln_source {  // never grows: it is used in arrays
  const char* path;
  const char* text;
  size_t text_bytes;
} cukiln_source;

/// cukiln::LinkMode: whether the sources of a module are linked.
typedef enum cukiln_link_mode {
  CUKILN_LINK_NONE = 0,  ///< one translation unit, unless the flags have -rdc=true, -dc or -dlto
  CUKILN_LINK_RDC = 1,   ///< relocatable machine code of each source
  CUKILN_LINK_LTO = 2    ///< LTO-IR of each source, machine code of all of it together
} cukiln_link_mode;

/// cukiln::ModuleSpec: sources that are compiled as one module. Macros are flags here: `-DN=4`.
/// `include` comes before `flags`, whose order is kept: see <cukiln/module_spec.hpp>.
typedef struct cukiln_module {
  size_t struct_bytes;
  // schema: cukiln_module. Written by src/schema/generate.py
  const char* name;  ///< for logs and lookups; NULL: the first source's base name
  const cukiln_source* sources;
  size_t source_count;
  const cukiln_source* headers;  ///< in memory, included as if they lay beside the sources
  size_t header_count;
  const char* const* include;  ///< folders, searched in order (`-I`)
  size_t include_count;
  const char* const* flags;  ///< NVRTC's, or nvcc's spellings (table: src/cli/README.md)
  size_t flag_count;
  /// kernels and variables: `extern "C"` names or name expressions; none: every `extern "C"` kernel
  const char* const* names;
  size_t name_count;
  const char* const* targets;  ///< `sm_100a`; none: from the flags, else the devices', else sm_100a
  size_t target_count;
  /// the folder to which paths in `flags` (`-include`, `-I`) are relative; NULL: the process's
  /// folder at the call
  const char* working_folder;
  /// in memory, under the name by which they are included: `#include <name>`, `#include "name"` and
  /// `-include name` find them before any folder
  const cukiln_source* named_headers;
  size_t named_header_count;
  /// not 0: do not serve `<cstdint>`, `<type_traits>`, … in versions for device code
  int no_std_shims;
  int link;  ///< a cukiln_link_mode
  /// files to link with the sources: cubins, fatbins, host objects and libraries with device code,
  /// PTX; with LTO, LTO-IR
  const char* const* objects;
  size_t object_count;
  // end of schema
} cukiln_module;

/// As cukiln_loader_preload, for modules instead of a file. With `no_load` it only compiles.
CUKILN_API cukiln_code cukiln_loader_preload_modules(cukiln_loader* loader,
                                                     const cukiln_module* const* modules,
                                                     size_t module_count,
                                                     const cukiln_preload_options* options,
                                                     cukiln_preload_report* report);

/// Returns a kernel of a module, which is compiled and loaded if it is not yet. `kernel` may be
/// NULL if the module has one kernel. `cancel` cancels this call with CUKILN_TIMEOUT; NULL: none.
CUKILN_API cukiln_code cukiln_loader_get(cukiln_loader* loader, const cukiln_module* module,
                                         const char* kernel, const cukiln_cancel_token* cancel,
                                         cukiln_kernel* out);

/// cukiln::Module::global: the address (a CUdeviceptr) and the size of a `__device__` or
/// `__constant__` variable on a device. The module is compiled and loaded if it is not yet. `name`
/// is a name expression in any spelling among the module's names, or the symbol of a variable that
/// a kernel uses. `size_bytes` may be NULL. Errors: as cukiln_loader_get; not_found (no such
/// variable), invalid_argument (not loaded on that device).
CUKILN_API cukiln_code cukiln_loader_get_global(cukiln_loader* loader, const cukiln_module* module,
                                                const char* name, int device, uint64_t* address,
                                                size_t* size_bytes);

/// Compiles and loads a module as PyTorch's cpp_extension.load does, with nvcc's flags.
/// cukiln_loader_find finds its kernels as `name/kernel`. A second call with the same arguments is
/// cheap.
CUKILN_API cukiln_code cukiln_loader_get_cuda_module(cukiln_loader* loader, const char* name,
                                                     const char* const* sources,
                                                     size_t source_count, const char* const* flags,
                                                     size_t flag_count);

/// Unloads the module with a key that a preload reported from every device, and empties its ids and
/// names; other ids do not change. Precondition: no stream or graph uses a kernel of the module.
/// Errors: not_found (no loaded module has this key), invalid_argument.
CUKILN_API cukiln_code cukiln_loader_unload(cukiln_loader* loader, const char* key);

/// cukiln::WatchOptions.
typedef struct cukiln_watch_options {
  size_t struct_bytes;
  // schema: cukiln_watch_options. Written by src/schema/generate.py
  int after_seal;  ///< 1: reload after cukiln_loader_seal too
  // end of schema
} cukiln_watch_options;

/// cukiln::Watch: a thread that reloads edited modules, for development.
/// cukiln::KernelLoader::watch says what it watches, and when a reload fails. `options` may be
/// NULL. Errors: invalid_argument (the loader is watched already), internal.
typedef struct cukiln_watch cukiln_watch;
CUKILN_API cukiln_code cukiln_loader_watch(cukiln_loader* loader,
                                           const cukiln_watch_options* options,
                                           cukiln_watch** watch);
/// Ends the thread, and cancels a compile of it. NULL is ignored. May be called after the loader is
/// destroyed, but not by a callback of it.
CUKILN_API void cukiln_watch_destroy(cukiln_watch* watch);

typedef enum cukiln_seal_policy {
  CUKILN_SEAL_FAIL = 0,  ///< a later compile or load is CUKILN_SEALED
  CUKILN_SEAL_WARN = 1   ///< it is done, logged and counted in sealed_violations
} cukiln_seal_policy;
CUKILN_API void cukiln_loader_seal(cukiln_loader* loader, cukiln_seal_policy policy);
CUKILN_API int cukiln_loader_sealed(const cukiln_loader* loader);

/// Makes compiles, those in progress included, return CUKILN_TIMEOUT until cukiln_loader_resume is
/// called.
CUKILN_API void cukiln_loader_cancel(cukiln_loader* loader);
CUKILN_API void cukiln_loader_resume(cukiln_loader* loader);

/// Lookups: lock-free, without allocation unless a name expression is not in the canonical
/// spelling; NULL if there is none (no error is kept). By name:
/// `kernel` (of the first module that has it) or `module/kernel`, each also with `@sm_90a`
/// appended. By id: the kernel's index in the preloaded manifests, 0 ≤ id < count.
CUKILN_API cukiln_kernel cukiln_loader_find(const cukiln_loader* loader, const char* name);
CUKILN_API cukiln_kernel cukiln_loader_at(const cukiln_loader* loader, size_t id);
CUKILN_API size_t cukiln_loader_kernel_count(const cukiln_loader* loader);

/// cukiln::canonical_name: the spelling of a name expression that lists have, `ns::k<float, 4>` for
/// `&ns::k<float,4>`. Lookups take every spelling, and find this one fastest. Writes it with a NUL
/// to `out`, truncated to `out_bytes`, and returns its length without the NUL; 0 if there is no
/// memory.
CUKILN_API size_t cukiln_canonical_name(const char* name, char* out, size_t out_bytes);

/// cukiln::DeviceInfo: a device that is visible to this process (`CUDA_VISIBLE_DEVICES`). The
/// caller sets `struct_bytes`, the library the rest.
typedef struct cukiln_device_info {
  size_t struct_bytes;
  // schema: cukiln_device_info. Written by src/schema/generate.py
  int ordinal;
  int capability;  ///< 90, 100
  uint64_t memory_bytes;
  uint32_t num_sms;
  char name[256];  ///< NUL-terminated
  // end of schema
} cukiln_device_info;

/// Counts the visible devices; their ordinals are 0 to `*count` - 1. The first call opens the
/// driver and fixes the list. `*count` is 0 after an error. Errors: driver, incompatible.
CUKILN_API cukiln_code cukiln_loader_device_count(cukiln_loader* loader, size_t* count);

/// Describes device `ordinal`. Errors: as cukiln_loader_device_count; invalid_argument (no such
/// device). `*device` is unchanged after an error.
CUKILN_API cukiln_code cukiln_loader_device(cukiln_loader* loader, int ordinal,
                                            cukiln_device_info* device);

/// The configuration of a launch. A dimension of zero counts as one.
typedef struct cukiln_launch_config {
  size_t struct_bytes;
  // schema: cukiln_launch_config. Written by src/schema/generate.py
  uint32_t grid[3];       ///< in blocks, with clusters too
  uint32_t block[3];      ///< in threads
  uint32_t shared_bytes;  ///< dynamic shared memory; above 48 KiB see cukiln_kernel_reserve_shared
  uint32_t cluster[3];    ///< in blocks; all zero: no clusters
  int programmatic_launch;  ///< 1: may start before its predecessor ends
  int cooperative;          ///< 1: all blocks resident together
  /// 1: several blocks of a cluster may share an SM, so that more clusters are resident
  int balance_clusters;
  // end of schema
} cukiln_launch_config;

/// Queues a launch; `arguments[i]` points to argument i. A call that succeeds takes no lock and
/// allocates nothing. Works inside stream capture; runs in the calling thread's current CUDA
/// context. Errors: invalid_argument (no kernel, no configuration), driver.
CUKILN_API cukiln_code cukiln_kernel_launch(cukiln_kernel kernel, cukiln_stream stream,
                                            const cukiln_launch_config* config,
                                            void* const* arguments);

/// Compares the number and sizes (in bytes) of arguments with the kernel's parameters. Call it
/// once, before the hot path. Errors: invalid_argument, naming the first argument that differs.
CUKILN_API cukiln_code cukiln_kernel_check_parameters(cukiln_kernel kernel, const size_t* sizes,
                                                      size_t count);

/// Raises the limit of dynamic shared memory to `shared_bytes` per block on every device. Not for
/// the hot path.
CUKILN_API cukiln_code cukiln_kernel_reserve_shared(cukiln_kernel kernel, uint32_t shared_bytes);

/// cukiln::KernelAttributes. The caller sets `struct_bytes`, the library the rest.
typedef struct cukiln_kernel_attributes {
  size_t struct_bytes;
  // schema: cukiln_kernel_attributes. Written by src/schema/generate.py
  uint32_t registers;            ///< per thread
  uint32_t max_block_threads;    ///< with these registers; a launch above it fails
  uint32_t static_shared_bytes;  ///< per block
  /// per block, the present limit: see cukiln_kernel_reserve_shared
  uint32_t dynamic_shared_bytes;
  uint32_t constant_bytes;  ///< of the kernel's own constants
  uint32_t local_bytes;     ///< stack frame per thread
  // end of schema
} cukiln_kernel_attributes;

/// Fills in the resources that the kernel uses on device `ordinal`. Not for the hot path. Errors:
/// invalid_argument (not loaded on that device), driver; `*attributes` is then unchanged.
CUKILN_API cukiln_code cukiln_kernel_get_attributes(cukiln_kernel kernel, int ordinal,
                                                    cukiln_kernel_attributes* attributes);

/// Computes how many blocks of `block_threads` threads with `shared_bytes` of dynamic shared memory
/// fit on one SM of device `ordinal` together; 0: not even one. `*blocks` is 0 after an error. Not
/// for the hot path. Errors: invalid_argument (not loaded there; a number of threads that no block
/// has), driver.
CUKILN_API cukiln_code cukiln_kernel_max_blocks_per_sm(cukiln_kernel kernel, int ordinal,
                                                       uint32_t block_threads,
                                                       uint32_t shared_bytes, uint32_t* blocks);

/// Copies the name, truncated to fit and NUL-terminated. Returns its full length without the NUL.
CUKILN_API size_t cukiln_kernel_name(cukiln_kernel kernel, char* buffer, size_t buffer_bytes);
CUKILN_API size_t cukiln_kernel_parameter_count(cukiln_kernel kernel);
/// 0 if there is no such parameter, or the driver does not report them (before CUDA 12.4).
CUKILN_API size_t cukiln_kernel_parameter_bytes(cukiln_kernel kernel, size_t index);
/// The driver's handle, a CUkernel; NULL for no kernel.
CUKILN_API struct CUkern_st* cukiln_kernel_native(cukiln_kernel kernel);

/// cukiln::Difference: a field in which a request and the nearest stored entry differ.
typedef struct cukiln_difference {  // never grows: it is used in arrays
  // schema: cukiln_difference. Written by src/schema/generate.py
  const char* field;
  const char* was;  ///< the entry's; empty if it has none
  const char* now;  ///< the request's; empty if it has none
  // end of schema
} cukiln_difference;

/// cukiln::Explanation. Created by the library; cukiln_explanation_destroy frees all of it.
typedef struct cukiln_explanation {
  // schema: cukiln_explanation. Written by src/schema/generate.py
  int hit;
  const char* key;      ///< of the entry that is the hit; else empty
  const char* nearest;  ///< on a miss: the entry with the fewest differences; else empty
  const cukiln_difference* differences;
  size_t difference_count;
  const char* target;  ///< of the request: the wanted one, or the family that is taken for it
  // end of schema
} cukiln_explanation;

/// Explains why a module hits or misses for a target, `sm_100a`. Compiles nothing. `*out` is NULL
/// after an error.
CUKILN_API cukiln_code cukiln_loader_explain(cukiln_loader* loader, const cukiln_module* module,
                                             const char* target, cukiln_explanation** out);
/// Compares two entries, given by their keys (64 hex digits).
CUKILN_API cukiln_code cukiln_loader_explain_keys(cukiln_loader* loader, const char* was,
                                                  const char* now, cukiln_explanation** out);
CUKILN_API void cukiln_explanation_destroy(cukiln_explanation* explanation);

/// Copies the cubin of a key (64 hex digits). Free it with cukiln_free. Errors: not_found.
CUKILN_API cukiln_code cukiln_loader_cubin(cukiln_loader* loader, const char* key, void** cubin,
                                           size_t* cubin_bytes);
CUKILN_API void cukiln_free(void* memory);

/// Copies the bytes of a blob (cukiln::BlobStore), which another compiler or cache keeps in a
/// loader's store under a kind (1 to 64 letters, digits, dots, underscores or hyphens) and a key of
/// 1 to 4096 bytes; free them with cukiln_free. `*data` is NULL if there is no such blob, or no
/// store on disk can be read; that is no error. Errors: invalid_argument (kind, key), as of all
/// functions for blobs.
CUKILN_API cukiln_code cukiln_blob_get(cukiln_loader* loader, const char* kind, const void* key,
                                       size_t key_bytes, void** data, size_t* data_bytes);
/// Sets `*there` to 1 or 0. Does not count as a use.
CUKILN_API cukiln_code cukiln_blob_contains(cukiln_loader* loader, const char* kind,
                                            const void* key, size_t key_bytes, int* there);
/// Stores bytes, and replaces those that the key has. Errors: invalid_argument (more than 256 MiB,
/// or than the store's cap), io (no store on disk, or one that cannot be written), timeout.
CUKILN_API cukiln_code cukiln_blob_put(cukiln_loader* loader, const char* kind, const void* key,
                                       size_t key_bytes, const void* data, size_t data_bytes);
/// Sets `*removed` to 0 if there was no such blob. Errors: io, timeout.
CUKILN_API cukiln_code cukiln_blob_remove(cukiln_loader* loader, const char* kind, const void* key,
                                          size_t key_bytes, int* removed);

/// cukiln::BlobLease: the right to produce a blob, of one caller of all threads and processes.
typedef struct cukiln_blob_lease cukiln_blob_lease;

/// As cukiln_blob_get, but if there is no such blob, `*lease` is the caller's lease to produce it,
/// else NULL; free it with cukiln_blob_lease_destroy. Waits at most `wait_ms` while another caller
/// has a lease, counted from the beginning of that. `cancel` ends the wait with CUKILN_TIMEOUT;
/// NULL: none.
CUKILN_API cukiln_code cukiln_blob_get_or_lease(cukiln_loader* loader, const char* kind,
                                                const void* key, size_t key_bytes, uint64_t wait_ms,
                                                const cukiln_cancel_token* cancel, void** data,
                                                size_t* data_bytes, cukiln_blob_lease** lease);
/// 1 if other callers wait; 0 if this one is of several that may produce the blob, or it has ended.
CUKILN_API int cukiln_blob_lease_is_exclusive(const cukiln_blob_lease* lease);
/// Stores the bytes and ends the lease, before the loader is destroyed. Errors: as of
/// cukiln_blob_put; invalid_argument (the lease has ended).
CUKILN_API cukiln_code cukiln_blob_lease_put(cukiln_blob_lease* lease, const void* data,
                                             size_t data_bytes);
/// Ends the lease, if no put has: those that wait then produce the blob themselves. NULL is
/// ignored. May be called after the loader is destroyed.
CUKILN_API void cukiln_blob_lease_destroy(cukiln_blob_lease* lease);

/// cukiln::BlobSummary.
typedef struct cukiln_blob {  // never grows: it is used in arrays
  // schema: cukiln_blob. Written by src/schema/generate.py
  const char* id;  ///< 64 hex digits, of which commands take a prefix
  const char* kind;
  const void* key;
  size_t key_bytes;
  uint64_t size_bytes;
  int64_t created_s;    ///< since 1970
  int64_t last_used_s;  ///< since 1970
  int64_t hits;
  /// the keys that signed it on its way here, `name:base64` or `unsigned`, separated by spaces, the
  /// last one last; empty if it was made here
  const char* signer;
  // end of schema
} cukiln_blob;

/// Lists the blobs of a kind; NULL: of every kind. Free `*blobs` with cukiln_free. Errors: io,
/// corrupt.
CUKILN_API cukiln_code cukiln_blob_list(cukiln_loader* loader, const char* kind,
                                        cukiln_blob** blobs, size_t* count);

/// cukiln::Stats, member for member. The caller sets `struct_bytes`, the library the rest.
typedef struct cukiln_stats {
  size_t struct_bytes;
  // schema: cukiln_stats. Written by src/schema/generate.py
  uint64_t entries;      ///< in the store now
  uint64_t store_bytes;  ///< of the store's files now
  uint64_t hits;
  uint64_t misses;                 ///< the sum of all misses_…
  uint64_t misses_new;             ///< the store had nothing for the request
  uint64_t misses_header_changed;  ///< or its file identity
  uint64_t misses_header_appeared;
  uint64_t misses_header_vanished;
  uint64_t misses_damaged;  ///< the entry failed its check
  uint64_t compiles;        ///< compiles that succeeded
  uint64_t failed;          ///< compiles that failed
  uint64_t stored;
  uint64_t not_stored;  ///< results that were used but not stored, for any reason
  uint64_t evicted;
  uint64_t corrupt;             ///< damaged entries that were found and removed
  uint64_t singleflight_waits;  ///< requests that waited for a compile of another caller
  uint64_t saved_us;            ///< compile time that hits saved
  uint64_t store_errors;        ///< failed store operations, which are not fatal
  uint64_t sealed_violations;   ///< compiles or loads after sealing with a warning
  uint64_t daemon_asked;        ///< requests to cukilnd
  uint64_t daemon_absent;       ///< of these: no daemon was running
  uint64_t daemon_failed;       ///< it hung, died, or was of another version or user
  uint64_t daemon_declined;     ///< it was busy or shutting down: compiled in this process
  uint64_t misses_revoked;      ///< the entry was signed by a revoked key
  uint64_t misses_evicted;      ///< the entry was recorded, and evicted or removed since
  // end of schema
} cukiln_stats;

CUKILN_API cukiln_code cukiln_loader_stats(const cukiln_loader* loader, cukiln_stats* stats);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers)
