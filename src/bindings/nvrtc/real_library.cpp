// SPDX-License-Identifier: Apache-2.0
#include "bindings/nvrtc/real_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln::nvrtc_binding {

namespace {

std::atomic<void*> g_real = nullptr;
std::atomic<const char*> g_report = nullptr;  // during api_with_report

const char* file_name(const char* path) noexcept {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
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

void* find_real() {
  if (void* const known = g_real.load()) {
    return known;
  }
  if (const char* const given = ::secure_getenv("CUKILN_NVRTC_LIBRARY");
      given != nullptr && *given != '\0') {
    if (void* const handle = open_library(given, RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
  }
  const char* loaded = nullptr;
  ::dl_iterate_phdr(find_loaded, &loaded);
  if (loaded != nullptr) {
    if (void* const handle = open_library(loaded, RTLD_NOW | RTLD_NOLOAD)) {
      return handle;
    }
  }
  for (const char* const name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (void* const handle = open_library(name, RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
  }
  return nullptr;
}

/// NVRTC reads these itself, as the front end in it does those of EDG, and the assembler in that of
/// 13.5 those of the finalizer.
const char* environment_of_results() {
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view variable = *one;
    if (variable.starts_with("NVRTC") || variable.starts_with("EDG_") ||
        variable.starts_with("FINALIZER_")) {
      return *one;
    }
  }
  return nullptr;
}

template <class Function>
void find(Function& function, void* handle, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
}

RealApi functions_of(void* handle) {
  RealApi api;
  dropin::RealNvrtc& programs = api.programs;
  programs.library = path_of(handle);
  programs.environment_of_results = environment_of_results;
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

Api make_api() {
  Api made;
  void* const handle = find_real();
  if (handle == nullptr) {
    return made;
  }
  g_real = handle;
  made.real = functions_of(handle);
  return made;
}

const dropin::ProgramFunctions* open_programs(const dropin::RealNvrtc& real) {
  if (real.create == nullptr || real.library == nullptr) {
    return nullptr;
  }
  void* const library = open_library(CUKILN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return nullptr;
  }
  dropin::OpenFunction open = nullptr;
  find(open, library, dropin::kOpenName);
  const char* report = ::secure_getenv("CUKILN_RUN_REPORT");
  if (report == nullptr || *report == '\0') {
    report = g_report;
  }
  return open != nullptr ? open(dropin::kInterface, &real, report) : nullptr;
}

}  // namespace

bool is_nvrtc(const char* path) noexcept {
  const char* const name = file_name(path);
  constexpr char kStem[] = "libnvrtc.so";
  const std::size_t length = sizeof kStem - 1;
  return std::strncmp(name, kStem, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

bool set_real(void* handle) noexcept {
  void* expected = nullptr;
  return g_real.compare_exchange_strong(expected, handle) || expected == handle;
}

const Api& api() {
  static const Api* const found = [] {
    static Api made = make_api();  // RealNvrtc stays where it is
    made.programs = open_programs(made.real.programs);
    return &made;
  }();
  return *found;
}

const Api& api_with_report(const char* file) {
  g_report = file;
  const Api& found = api();
  g_report = nullptr;
  return found;
}

}  // namespace cukiln::nvrtc_binding
