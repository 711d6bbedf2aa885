// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/library/nvrtc_api.hpp"

#include <link.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace cukiln::binding {

const Peer kPeer = {"libnvrtc.so", "nvrtcCompileProgram", "CUKILN_NVRTC_LIBRARY",
                    "own",         dropin::kInterface,    [](void* /*handle*/) { return true; }};

namespace {

/// NVRTC reads the first two itself, its front end those of EDG. NVRTC_DISABLE_CONCURRENT_NVVM,
/// NVRTC_DISABLE_PCH, NVRTC_INTERNAL_GLOBAL_LOCK and NVRTC_PCH_HEAP_SIZE change no code.
const char* environment_of_results() {
  static constexpr const char* kVariables[] = {"NVRTC_APPEND_FLAGS=", "NVRTCWIZ=", "EDG_", nullptr};
  return find_variable(kVariables);
}

const char* pwd() { return ::getenv("PWD"); }

int find_driver(dl_phdr_info* info, std::size_t /*size*/, void* /*unused*/) {
  return info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "/libcuda.so") != nullptr ? 1
                                                                                              : 0;
}

/// Reports a process that used CUDA and called nothing here, at its end. It compiled nothing, or is
/// linked with NVRTC: the two look alike.
__attribute__((destructor)) void report_unseen() {
  if (!was_called() && ::dl_iterate_phdr(find_driver, nullptr) != 0) {
    char program[PATH_MAX] = {};
    static_cast<void>(!::readlink("/proc/self/exe", program, sizeof program - 1));
    report_unreached("unseen", program);
  }
}

RealApi* find_functions(void* handle) {
  auto* const made = new RealApi;
  if (handle == nullptr) {
    return made;
  }
  RealApi& api = *made;
  dropin::NvrtcFunctions& programs = api.programs;
  find_function(programs.version, handle, "nvrtcVersion");
  find_function(programs.create, handle, "nvrtcCreateProgram");
  find_function(programs.destroy, handle, "nvrtcDestroyProgram");
  find_function(programs.compile, handle, "nvrtcCompileProgram");
  find_function(programs.add_name, handle, "nvrtcAddNameExpression");
  find_function(programs.lowered_name, handle, "nvrtcGetLoweredName");
  find_function(programs.pch_status, handle, "nvrtcGetPCHCreateStatus");
  find_function(programs.pch_heap_required, handle, "nvrtcGetPCHHeapSizeRequired");
  find_function(programs.set_flow_callback, handle, "nvrtcSetFlowCallback");
  constexpr const char* kNames[dropin::kParts] = {"ProgramLog", "PTX",  "CUBIN", "LTOIR",
                                                  "OptiXIR",    "NVVM", "TileIR"};
  find_getters(programs.bytes, programs.size, handle, "nvrtcGet", kNames);
  find_function(api.error_string, handle, "nvrtcGetErrorString");
  find_function(api.count_architectures, handle, "nvrtcGetNumSupportedArchs");
  find_function(api.architectures, handle, "nvrtcGetSupportedArchs");
  find_function(api.pch_heap, handle, "nvrtcGetPCHHeapSize");
  find_function(api.set_pch_heap, handle, "nvrtcSetPCHHeapSize");
  find_function(api.install_headers, handle, "nvrtcInstallBundledHeaders");
  find_function(api.headers_info, handle, "nvrtcGetBundledHeadersInfo");
  find_function(api.remove_headers, handle, "nvrtcRemoveBundledHeaders");
  return made;
}

std::atomic<decltype(dropin::NvrtcFunctions::create)> g_create = nullptr;  // NVRTC's

int create(dropin::Handle* program, const char* text, const char* name, int count,
           const char* const* headers, const char* const* names) {
  open_builtins();
  return g_create.load()(program, text, name, count, headers, names);
}

std::atomic<const RealApi*> g_real_api = nullptr;

}  // namespace

const RealApi& real_api() {
  if (const RealApi* const known = g_real_api.load()) {
    return *known;
  }
  // Several threads may get here: all find the same, and the first to end is heard.
  RealApi* const made = find_functions(open_real());
  if (made->programs.create != nullptr) {
    g_create = made->programs.create;
    made->programs.create = create;
  }
  const RealApi* known = nullptr;
  return g_real_api.compare_exchange_strong(known, made) ? *made : *known;
}

void open_builtins() {
  static std::atomic<bool> done = false;
  if (!done) {
    if (void* const nvrtc = open_real()) {
      open_files_of(path_of(nvrtc));
    }
    done = true;
  }
}

const Api* make_own_api(void* handle) {
  auto* const made = new Api;
  made->own = find_functions(handle);
  return made;
}

const Api* make_api() {
  auto* const made = new Api;
  dropin::RealNvrtc& nvrtc = made->nvrtc;
  nvrtc.library = find_real();
  nvrtc.functions = []() -> const dropin::NvrtcFunctions& { return real_api().programs; };
  nvrtc.environment_of_results = environment_of_results;
  nvrtc.pwd = pwd;
  if (nvrtc.library != nullptr) {
    made->programs = static_cast<const dropin::ProgramFunctions*>(open_functions(&nvrtc));
  }
  return made;
}

}  // namespace cukiln::binding
