// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/library/nvrtc_api.hpp"

#include <link.h>
#include <unistd.h>

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

}  // namespace

Api* make_api(void* handle) {
  auto* const made = new Api;
  if (handle == nullptr) {
    return made;
  }
  RealApi& api = made->real;
  dropin::RealNvrtc& programs = api.programs;
  programs.library = path_of(handle);
  programs.environment_of_results = environment_of_results;
  programs.pwd = pwd;
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

void add_functions(Api& api) {
  const dropin::RealNvrtc& real = api.real.programs;
  if (real.create != nullptr && real.library != nullptr) {
    api.programs = static_cast<const dropin::ProgramFunctions*>(open_functions(&real));
  }
}

}  // namespace cukiln::binding
