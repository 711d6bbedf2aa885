// SPDX-License-Identifier: Apache-2.0
// The functions of NVRTC 12.8 to 13.5. A function that the real NVRTC lacks is an internal error.

#include <cstddef>

#include "addons/nvrtc/library/nvrtc_api.hpp"

#define CUKILN_EXPORTED extern "C" __attribute__((visibility("default")))
// In the library that makes the call, but for one that returns what a call returns: that is a jump.
#define CUKILN_CALLER __builtin_return_address(0)

namespace {

using cukiln::binding::Api;
using cukiln::binding::api_for;
using cukiln::binding::open_builtins;
using cukiln::binding::RealApi;
using cukiln::dropin::Handle;
using cukiln::dropin::kInternalError;
using cukiln::dropin::NvrtcFunctions;
using cukiln::dropin::Part;
using cukiln::dropin::ProgramFunctions;

template <class Function, class... Arguments>
int forward(Function function, Arguments... arguments) {
  return function != nullptr ? function(arguments...) : kInternalError;
}

/// Calls cukiln's function of a purpose, or the real NVRTC's.
template <class Function, class... Arguments>
int call(const void* caller, Function ProgramFunctions::*ours, Function NvrtcFunctions::*real,
         Arguments... arguments) {
  const Api& both = api_for(caller);
  return both.programs != nullptr ? (both.programs->*ours)(arguments...)
                                  : forward(both.real().programs.*real, arguments...);
}

int size_of(const void* caller, Part part, Handle program, std::size_t* bytes) {
  const Api& both = api_for(caller);
  return both.programs != nullptr
             ? both.programs->size(part, program, bytes)
             : forward(both.real().programs.size[static_cast<int>(part)], program, bytes);
}

/// The functions for the headers that NVRTC carries: they are in its builtins library.
const RealApi& headers_of(const void* caller) {
  const Api& both = api_for(caller);
  if (both.own == nullptr) {
    open_builtins();
  }
  return both.real();
}

int bytes_of(const void* caller, Part part, Handle program, char* out) {
  const Api& both = api_for(caller);
  return both.programs != nullptr
             ? both.programs->bytes(part, program, out)
             : forward(both.real().programs.bytes[static_cast<int>(part)], program, out);
}

}  // namespace

/// Opens the real NVRTC, as the first call of a function below does, and has programs reported to a
/// file, unless CUKILN_RUN_REPORT names one. Without effect after such a call.
CUKILN_EXPORTED void cukiln_nvrtc_open_with_report(const char* file) {
  static_cast<void>(cukiln::binding::api_with_report(file));
}

// NOLINTBEGIN(readability-identifier-naming): NVRTC's names
CUKILN_EXPORTED const char* nvrtcGetErrorString(int code) {
  const auto real = api_for(CUKILN_CALLER).real().error_string;
  return real != nullptr
             ? real(code)
             : "NVRTC was not found; set CUKILN_NVRTC_LIBRARY to the path of libnvrtc.so";
}
CUKILN_EXPORTED int nvrtcVersion(int* major, int* minor) {
  return forward(api_for(CUKILN_CALLER).real().programs.version, major, minor);
}
CUKILN_EXPORTED int nvrtcGetNumSupportedArchs(int* count) {
  return forward(api_for(CUKILN_CALLER).real().count_architectures, count);
}
CUKILN_EXPORTED int nvrtcGetSupportedArchs(int* architectures) {
  return forward(api_for(CUKILN_CALLER).real().architectures, architectures);
}
CUKILN_EXPORTED int nvrtcGetPCHHeapSize(std::size_t* bytes) {
  return forward(api_for(CUKILN_CALLER).real().pch_heap, bytes);
}
CUKILN_EXPORTED int nvrtcSetPCHHeapSize(std::size_t bytes) {
  return forward(api_for(CUKILN_CALLER).real().set_pch_heap, bytes);
}
CUKILN_EXPORTED int nvrtcInstallBundledHeaders(const char* folder, unsigned flags,
                                               const char** error) {
  return forward(headers_of(CUKILN_CALLER).install_headers, folder, flags, error);
}
CUKILN_EXPORTED int nvrtcGetBundledHeadersInfo(void* info, const char** error) {
  return forward(headers_of(CUKILN_CALLER).headers_info, info, error);
}
CUKILN_EXPORTED int nvrtcRemoveBundledHeaders(const char* folder, unsigned flags,
                                              const char** error) {
  return forward(headers_of(CUKILN_CALLER).remove_headers, folder, flags, error);
}

CUKILN_EXPORTED int nvrtcCreateProgram(Handle* program, const char* text, const char* name,
                                       int count, const char* const* headers,
                                       const char* const* names) {
  const void* const caller = CUKILN_CALLER;
  const Api& both = api_for(caller);
  return both.programs != nullptr
             ? both.programs->create(caller, program, text, name, count, headers, names)
             : forward(both.real().programs.create, program, text, name, count, headers, names);
}
CUKILN_EXPORTED int nvrtcDestroyProgram(Handle* program) {
  return call(CUKILN_CALLER, &ProgramFunctions::destroy, &NvrtcFunctions::destroy, program);
}
CUKILN_EXPORTED int nvrtcCompileProgram(Handle program, int count, const char* const* options) {
  return call(CUKILN_CALLER, &ProgramFunctions::compile, &NvrtcFunctions::compile, program, count,
              options);
}
CUKILN_EXPORTED int nvrtcAddNameExpression(Handle program, const char* expression) {
  return call(CUKILN_CALLER, &ProgramFunctions::add_name, &NvrtcFunctions::add_name, program,
              expression);
}
CUKILN_EXPORTED int nvrtcGetLoweredName(Handle program, const char* expression,
                                        const char** lowered) {
  return call(CUKILN_CALLER, &ProgramFunctions::lowered_name, &NvrtcFunctions::lowered_name,
              program, expression, lowered);
}
CUKILN_EXPORTED int nvrtcGetPCHCreateStatus(Handle program) {
  return call(CUKILN_CALLER, &ProgramFunctions::pch_status, &NvrtcFunctions::pch_status, program);
}
CUKILN_EXPORTED int nvrtcGetPCHHeapSizeRequired(Handle program, std::size_t* bytes) {
  return call(CUKILN_CALLER, &ProgramFunctions::pch_heap_required,
              &NvrtcFunctions::pch_heap_required, program, bytes);
}
CUKILN_EXPORTED int nvrtcSetFlowCallback(Handle program, int (*callback)(void*, void*),
                                         void* payload) {
  return call(CUKILN_CALLER, &ProgramFunctions::set_flow_callback,
              &NvrtcFunctions::set_flow_callback, program, callback, payload);
}

CUKILN_EXPORTED int nvrtcGetProgramLogSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::log, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetProgramLog(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::log, program, out);
}
CUKILN_EXPORTED int nvrtcGetPTXSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::ptx, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetPTX(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::ptx, program, out);
}
CUKILN_EXPORTED int nvrtcGetCUBINSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::cubin, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetCUBIN(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::cubin, program, out);
}
CUKILN_EXPORTED int nvrtcGetLTOIRSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::lto_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetLTOIR(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::lto_ir, program, out);
}
CUKILN_EXPORTED int nvrtcGetOptiXIRSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::optix_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetOptiXIR(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::optix_ir, program, out);
}
CUKILN_EXPORTED int nvrtcGetNVVMSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::nvvm, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetNVVM(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::nvvm, program, out);
}
CUKILN_EXPORTED int nvrtcGetTileIRSize(Handle program, std::size_t* bytes) {
  return size_of(CUKILN_CALLER, Part::tile_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetTileIR(Handle program, char* out) {
  return bytes_of(CUKILN_CALLER, Part::tile_ir, program, out);
}
// NOLINTEND(readability-identifier-naming)
