// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/library/real_library.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "addons/nvrtc/library/own_nvrtc.hpp"

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln::nvrtc_binding {

namespace {

std::atomic<void*> g_real = nullptr;
std::atomic<const char*> g_report = nullptr;  // during api_with_report
std::atomic<void*> g_libcukiln = nullptr;
std::atomic<const Api*> g_api = nullptr;

// A fork waits for a library that another thread is opening: the child would find it half open, for
// ever. Held during a dlopen and nothing else, since libcukiln's functions wait for forks
// themselves.
pthread_mutex_t g_opening = PTHREAD_MUTEX_INITIALIZER;
void lock_opening() { ::pthread_mutex_lock(&g_opening); }
void unlock_opening() { ::pthread_mutex_unlock(&g_opening); }
const int kForkHandlers = ::pthread_atfork(lock_opening, unlock_opening, unlock_opening);

void* open_before_forks(const char* file, int mode) {
  lock_opening();
  void* const handle = open_library(file, mode);
  unlock_opening();
  return handle;
}

const char* file_name(const char* path) noexcept {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

/// True for a library's path with its name, and with a version behind it.
bool is_file_of(const char* path, const char* stem) noexcept {
  const char* const name = file_name(path);
  const std::size_t length = std::strlen(stem);
  return std::strncmp(name, stem, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

/// The path of an open library; null if it is not known.
const char* path_of(void* handle) noexcept {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : nullptr;
}

/// Finds an NVRTC among the libraries of this process, which dlsym(RTLD_NEXT) would miss where it
/// came with a module of Python.
int find_loaded(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  if (info->dlpi_name == nullptr || !is_nvrtc(info->dlpi_name)) {
    return 0;
  }
  *static_cast<const char**>(found) = info->dlpi_name;
  return 1;
}

/// libcukiln's function of this name; null if that library is not beside this one.
template <class Function>
Function libcukiln_function(const char* name) {
  void* library = g_libcukiln;
  if (library == nullptr) {
    library = open_before_forks(CUKILN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    g_libcukiln = library;
  }
  return library != nullptr ? reinterpret_cast<Function>(::dlsym(library, name)) : nullptr;
}

/// Has libcukiln search for an NVRTC, or for the builtins of the one that is `opened`.
bool find_files(const char* opened, dropin::FoundNvrtc& found) {
  const auto find = libcukiln_function<dropin::FindFunction>(dropin::kFindName);
  return find != nullptr && find(dropin::kInterface, opened, &found);
}

/// The NVRTC that the program has loaded or is told to use, else the first that is found.
void* find_real(dropin::FoundNvrtc& found) {
  if (void* const known = g_real.load()) {
    return known;
  }
  if (const char* const given = ::secure_getenv("CUKILN_NVRTC_LIBRARY");
      given != nullptr && *given != '\0') {
    if (void* const handle = open_before_forks(given, RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
  }
  const char* loaded = nullptr;
  ::dl_iterate_phdr(find_loaded, &loaded);
  if (loaded != nullptr) {
    if (void* const handle = open_before_forks(loaded, RTLD_NOW | RTLD_NOLOAD)) {
      return handle;
    }
  }
  return find_files(nullptr, found) ? open_before_forks(found.library, RTLD_NOW | RTLD_LOCAL)
                                    : nullptr;
}

/// Opens the builtins library beside an NVRTC, which opens it by its name alone at its first
/// compile. Whoever opens NVRTC by its path does this too.
void open_builtins(const char* nvrtc, dropin::FoundNvrtc& found) {
  if (nvrtc != nullptr && find_files(nvrtc, found) && found.builtins[0] != '\0') {
    static_cast<void>(open_before_forks(found.builtins, RTLD_NOW | RTLD_LOCAL));
  }
}

/// Returns what is set of the variables that may change a result. NVRTC reads the first two itself,
/// its front end those of EDG, and the assembler in 13.5's those of the finalizer: what 12.8, 12.9,
/// 13.0 and 13.5 ask `getenv` for. They also ask for NVRTC_DISABLE_CONCURRENT_NVVM,
/// NVRTC_DISABLE_PCH, NVRTC_INTERNAL_GLOBAL_LOCK and NVRTC_PCH_HEAP_SIZE, which change no code.
const char* environment_of_results() {
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view variable = *one;
    for (const std::string_view prefix :
         {"NVRTC_APPEND_FLAGS=", "NVRTCWIZ=", "EDG_", "FINALIZER_"}) {
      if (variable.starts_with(prefix)) {
        return *one;
      }
    }
  }
  return nullptr;
}

const char* pwd() { return ::getenv("PWD"); }

template <class Function>
void find(Function& function, void* handle, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
}

}  // namespace

RealApi functions_of(void* handle) {
  RealApi api;
  dropin::RealNvrtc& programs = api.programs;
  programs.library = path_of(handle);
  programs.environment_of_results = environment_of_results;
  programs.pwd = pwd;
  find(programs.version, handle, "nvrtcVersion");
  find(programs.create, handle, "nvrtcCreateProgram");
  find(programs.destroy, handle, "nvrtcDestroyProgram");
  find(programs.compile, handle, "nvrtcCompileProgram");
  find(programs.add_name, handle, "nvrtcAddNameExpression");
  find(programs.lowered_name, handle, "nvrtcGetLoweredName");
  find(programs.pch_status, handle, "nvrtcGetPCHCreateStatus");
  find(programs.pch_heap_required, handle, "nvrtcGetPCHHeapSizeRequired");
  find(programs.set_flow_callback, handle, "nvrtcSetFlowCallback");
  constexpr const char* kNames[dropin::kParts] = {"ProgramLog", "PTX",  "CUBIN", "LTOIR",
                                                  "OptiXIR",    "NVVM", "TileIR"};
  for (int part = 0; part < dropin::kParts; ++part) {
    char name[64];
    std::snprintf(name, sizeof name, "nvrtcGet%s", kNames[part]);
    find(programs.bytes[part], handle, name);
    std::snprintf(name, sizeof name, "nvrtcGet%sSize", kNames[part]);
    find(programs.size[part], handle, name);
  }
  find(api.error_string, handle, "nvrtcGetErrorString");
  find(api.count_architectures, handle, "nvrtcGetNumSupportedArchs");
  find(api.architectures, handle, "nvrtcGetSupportedArchs");
  find(api.pch_heap, handle, "nvrtcGetPCHHeapSize");
  find(api.set_pch_heap, handle, "nvrtcSetPCHHeapSize");
  find(api.install_headers, handle, "nvrtcInstallBundledHeaders");
  find(api.headers_info, handle, "nvrtcGetBundledHeadersInfo");
  find(api.remove_headers, handle, "nvrtcRemoveBundledHeaders");
  return api;
}

void report_unreached(const char* word, const char* path) noexcept {
  const char* const report = ::secure_getenv("CUKILN_RUN_REPORT");
  rlimit limit{};
  if (report == nullptr || *report == '\0' || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      limit.rlim_cur != RLIM_INFINITY) {
    return;  // a write beyond a limit would end the host
  }
  const int file = ::open(report, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0) {
    char line[PATH_MAX + 32];
    const int length = std::snprintf(line, sizeof line, "%s 0 %s\t\n", word, path);
    if (length > 0 && static_cast<std::size_t>(length) < sizeof line) {
      static_cast<void>(!::write(file, line, static_cast<std::size_t>(length)));
    }
    ::close(file);
  }
}

namespace {

int find_driver(dl_phdr_info* info, std::size_t /*size*/, void* /*unused*/) {
  return info->dlpi_name != nullptr && is_file_of(info->dlpi_name, "libcuda.so") ? 1 : 0;
}

/// Reports a process that used CUDA and called nothing here, at its end. It compiled nothing, or is
/// linked with NVRTC: the two look alike.
__attribute__((destructor)) void report_unseen() {
  if (g_api == nullptr && !has_own_nvrtc() && ::dl_iterate_phdr(find_driver, nullptr) != 0) {
    char program[PATH_MAX] = {};
    static_cast<void>(!::readlink("/proc/self/exe", program, sizeof program - 1));
    report_unreached("unseen", program);
  }
}

Api make_api() {
  if (g_real == nullptr) {
    if (const Api* const own = own_nvrtc_of_process()) {
      return *own;
    }
  }
  Api made;
  dropin::FoundNvrtc found{};
  void* const handle = find_real(found);
  if (handle == nullptr) {
    return made;
  }
  made.real = functions_of(set_real(handle) ? handle : g_real.load());
  open_builtins(made.real.programs.library, found);
  return made;
}

const dropin::ProgramFunctions* open_programs(const dropin::RealNvrtc& real) {
  if (real.create == nullptr || real.library == nullptr) {
    return nullptr;
  }
  const auto open = libcukiln_function<dropin::OpenFunction>(dropin::kOpenName);
  const char* report = ::secure_getenv("CUKILN_RUN_REPORT");
  if (report == nullptr || *report == '\0') {
    report = g_report;
  }
  return open != nullptr ? open(dropin::kInterface, &real, report) : nullptr;
}

}  // namespace

bool is_nvrtc(const char* path) noexcept { return is_file_of(path, "libnvrtc.so"); }

bool set_real(void* handle) noexcept {
  void* expected = nullptr;
  return g_real.compare_exchange_strong(expected, handle) || expected == handle;
}

const Api& api() {
  if (const Api* const known = g_api.load()) {
    return *known;
  }
  // Several threads may get here; the first to end is heard. Nothing of the others is destroyed,
  // since libcukiln may have got their RealNvrtc.
  auto* const made = new Api(make_api());
  made->programs = g_real != nullptr ? open_programs(made->real.programs) : nullptr;
  const Api* known = nullptr;
  return g_api.compare_exchange_strong(known, made) ? *made : *known;
}

const Api& api_for(const void* caller) {
  const Api* const own = own_nvrtc_of(caller);
  return own != nullptr ? *own : api();
}

const Api& api_with_report(const char* file) {
  g_report = file;
  const Api& found = api();
  g_report = nullptr;
  return found;
}

}  // namespace cukiln::nvrtc_binding
