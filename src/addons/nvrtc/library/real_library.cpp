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

#include "addons/nvrtc/library/own_library.hpp"
#include "addons/nvrtc/nvrtc_functions.hpp"

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln::binding {

namespace {

using dropin::FoundLibrary;

std::atomic<void*> g_real = nullptr;
char g_unopened = '\0';                       // what g_real points to while the real peer is a file
std::atomic<const char*> g_file = nullptr;    // that file
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

/// Finds a peer among the libraries of this process, which dlsym(RTLD_NEXT) would miss where it
/// came with a module of Python.
int find_loaded(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  if (info->dlpi_name == nullptr || !is_peer(info->dlpi_name)) {
    return 0;
  }
  *static_cast<const char**>(found) = info->dlpi_name;
  return 1;
}

/// libcukiln's function of this name; null, and reported, if that library cannot be opened.
template <class Function>
Function libcukiln_function(const char* name) {
  void* library = g_libcukiln;
  if (library == nullptr) {
    library = open_before_forks(CUKILN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    g_libcukiln = library;
  }
  void* const function = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (function == nullptr) {
    const char* const why = ::dlerror();
    report_unreached("unopened", CUKILN_LIBRARY, why != nullptr ? why : "?");
  }
  return reinterpret_cast<Function>(function);
}

/// Has libcukiln search for a peer, or for the builtins of the NVRTC that is `opened`.
bool find_files(const char* opened, FoundLibrary& found) {
  const auto find = libcukiln_function<dropin::FindFunction>(dropin::kFindName);
  return find != nullptr && find(kPeer.interface, opened, &found);
}

/// A peer among the libraries of this process.
void* loaded_peer() {
  const char* loaded = nullptr;
  ::dl_iterate_phdr(find_loaded, &loaded);
  return loaded != nullptr ? open_before_forks(loaded, RTLD_NOW | RTLD_NOLOAD) : nullptr;
}

void* search_peer() {
  FoundLibrary found{};
  return find_files(nullptr, found) ? open_before_forks(found.library, RTLD_NOW | RTLD_LOCAL)
                                    : nullptr;
}

/// Makes a file the real peer, to be opened when its functions are needed.
void set_real_file(const char* path) {
  const char* none = nullptr;
  char* const copy = ::strdup(path);
  if (copy == nullptr || !g_file.compare_exchange_strong(none, copy)) {
    std::free(copy);
  }
  void* expected = nullptr;
  if (g_file != nullptr) {
    g_real.compare_exchange_strong(expected, &g_unopened);
  }
}

void choose_real() {
  const char* const given = ::secure_getenv(kPeer.variable);
  if (given != nullptr && *given == '/' && ::access(given, R_OK) == 0) {
    set_real_file(given);
    return;
  }
  void* opened = given != nullptr && *given != '\0'
                     ? open_before_forks(given, RTLD_NOW | RTLD_LOCAL)
                     : nullptr;
  opened = opened != nullptr ? opened : loaded_peer();
  FoundLibrary found{};
  if (opened != nullptr) {
    static_cast<void>(set_real(opened));
  } else if (find_files(nullptr, found)) {
    set_real_file(found.library);
  }
}

}  // namespace

void report_unreached(const char* word, const char* path, const char* why) noexcept {
  const char* const report = ::secure_getenv("CUKILN_RUN_REPORT");
  rlimit limit{};
  if (report == nullptr || *report == '\0' || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      limit.rlim_cur != RLIM_INFINITY) {
    return;  // a write beyond a limit would end the host
  }
  const int file = ::open(report, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0) {
    char line[2 * PATH_MAX + 32];
    const int length = std::snprintf(line, sizeof line, "%s 0 %s\t%s\n", word, path, why);
    if (length > 0 && static_cast<std::size_t>(length) < sizeof line) {
      static_cast<void>(!::write(file, line, static_cast<std::size_t>(length)));
    }
    ::close(file);
  }
}

const char* find_real() {
  if (g_real == nullptr) {
    choose_real();
  }
  void* const real = g_real;
  return real == &g_unopened ? g_file.load() : real != nullptr ? path_of(real) : nullptr;
}

void* open_real() {
  static_cast<void>(find_real());
  void* real = g_real;
  if (real != &g_unopened) {
    return real;
  }
  void* opened = open_before_forks(g_file, RTLD_NOW | RTLD_LOCAL);
  opened = opened != nullptr ? opened : loaded_peer();
  opened = opened != nullptr ? opened : search_peer();
  if (opened == nullptr || g_real.compare_exchange_strong(real, opened)) {
    return opened;
  }
  return real;
}

void open_files_of(const char* peer) {
  FoundLibrary found{};
  if (peer != nullptr && find_files(peer, found) && found.builtins[0] != '\0') {
    static_cast<void>(open_before_forks(found.builtins, RTLD_NOW | RTLD_LOCAL));
  }
}

const void* open_functions(const void* real) {
  const auto open = libcukiln_function<dropin::OpenFunction>(dropin::kOpenName);
  const char* report = ::secure_getenv("CUKILN_RUN_REPORT");
  if (report == nullptr || *report == '\0') {
    report = g_report;
  }
  return open != nullptr ? open(kPeer.interface, real, report) : nullptr;
}

namespace {

/// Each compile asks: most variables differ in their first byte, and no function is called for one.
bool begins_with_any(const char* variable, const char* const* prefixes) noexcept {
  for (; *prefixes != nullptr; ++prefixes) {
    const char* rest = variable;
    const char* prefix = *prefixes;
    for (; *prefix != '\0' && *prefix == *rest; ++prefix) {
      ++rest;
    }
    if (*prefix == '\0') {
      return true;
    }
  }
  return false;
}

}  // namespace

const char* find_variable(const char* const* prefixes) {
  static constexpr const char* kOfBoth[] = {
      "AS_SECURE_LOG_FILE=", "CAN_FINALIZE_DEBUG=",   "DUMP_KNOBS_TO_FILE=",
      "FINALIZER_",          "LIBNVVM_NVVM_VERSION=", "LLVM_OVERRIDE_PRODUCER=",
      "NVVM_IR_VER_CHK=",    "NV_NVVM_VERSION=",      nullptr};
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    if (begins_with_any(*one, prefixes) || begins_with_any(*one, kOfBoth)) {
      return *one;
    }
  }
  return nullptr;
}

const char* path_of(void* handle) noexcept {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : nullptr;
}

bool is_peer(const char* path) noexcept { return is_file_of(path, kPeer.stem); }

bool set_real(void* handle) noexcept {
  void* expected = nullptr;
  if (g_real.compare_exchange_strong(expected, handle)) {
    return true;
  }
  return (expected == &g_unopened ? open_real() : expected) == handle;
}

bool was_called() noexcept { return g_api != nullptr || has_own_library(); }

const Api& api() {
  if (const Api* const known = g_api.load()) {
    return *known;
  }
  // Several threads may get here; the first to end is heard. Nothing of the others is destroyed,
  // since libcukiln may have got their functions.
  const Api* made = g_real == nullptr ? own_library_of_process() : nullptr;
  if (made == nullptr) {
    made = make_api();
  }
  const Api* known = nullptr;
  return g_api.compare_exchange_strong(known, made) ? *made : *known;
}

const Api& api_for(const void* caller) {
  const Api* const own = own_library_of(caller);
  return own != nullptr ? *own : api();
}

const Api& api_with_report(const char* file) {
  g_report = file;
  const Api& found = api();
  g_report = nullptr;
  return found;
}

}  // namespace cukiln::binding
