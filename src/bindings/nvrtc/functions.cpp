// SPDX-License-Identifier: Apache-2.0
// The functions of NVRTC 12.8 to 13.5. A function that the real NVRTC lacks is an internal error.

#include <cstddef>

#include "bindings/nvrtc/real_library.hpp"

#define CUKILN_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using cukiln::dropin::Handle;
using cukiln::dropin::kInternalError;
using cukiln::dropin::Part;
using cukiln::dropin::ProgramFunctions;
using cukiln::dropin::RealNvrtc;
using cukiln::nvrtc_binding::api;
using cukiln::nvrtc_binding::Api;

template <class Function, class... Arguments>
int forward(Function function, Arguments... arguments) {
  return function != nullptr ? function(arguments...) : kInternalError;
}

/// Calls cukiln's function of a purpose, or the real NVRTC's.
template <class Function, class... Arguments>
int call(Function ProgramFunctions::*ours, Function RealNvrtc::*real, Arguments... arguments) {
  const Api& both = api();
  return both.programs != nullptr ? (both.programs->*ours)(arguments...)
                                  : forward(both.real.programs.*real, arguments...);
}

int size_of(Part part, Handle program, std::size_t* bytes) {
  const Api& both = api();
  return both.programs != nullptr
             ? both.programs->size(part, program, bytes)
             : forward(both.real.programs.size[static_cast<int>(part)], program, bytes);
}

int bytes_of(Part part, Handle program, char* out) {
  const Api& both = api();
  return both.programs != nullptr
             ? both.programs->bytes(part, program, out)
             : forward(both.real.programs.bytes[static_cast<int>(part)], program, out);
}

}  // namespace

/// Opens the real NVRTC, as the first call of a function below does, and has programs reported to a
/// file, unless CUKILN_RUN_REPORT names one. Without effect after such a call.
CUKILN_EXPORTED void cukiln_nvrtc_open_with_report(const char* file) {
  static_cast<void>(cukiln::nvrtc_binding::api_with_report(file));
}

// NOLINTBEGIN(readability-identifier-naming): NVRTC's names
CUKILN_EXPORTED const char* nvrtcGetErrorString(int code) {
  const auto real = api().real.error_string;
  return real != nullptr
             ? real(code)
             : "NVRTC was not found; set CUKILN_NVRTC_LIBRARY to the path of libnvrtc.so";
}
CUKILN_EXPORTED int nvrtcVersion(int* major, int* minor) {
  return forward(api().real.programs.version, major, minor);
}
CUKILN_EXPORTED int nvrtcGetNumSupportedArchs(int* count) {
  return forward(api().real.count_architectures, count);
}
CUKILN_EXPORTED int nvrtcGetSupportedArchs(int* architectures) {
  return forward(api().real.architectures, architectures);
}
CUKILN_EXPORTED int nvrtcGetPCHHeapSize(std::size_t* bytes) {
  return forward(api().real.pch_heap, bytes);
}
CUKILN_EXPORTED int nvrtcSetPCHHeapSize(std::size_t bytes) {
  return forward(api().real.set_pch_heap, bytes);
}
CUKILN_EXPORTED int nvrtcInstallBundledHeaders(const char* folder, unsigned flags,
                                               const char** error) {
  return forward(api().real.install_headers, folder, flags, error);
}
CUKILN_EXPORTED int nvrtcGetBundledHeadersInfo(void* info, const char** error) {
  return forward(api().real.headers_info, info, error);
}
CUKILN_EXPORTED int nvrtcRemoveBundledHeaders(const char* folder, unsigned flags,
                                              const char** error) {
  return forward(api().real.remove_headers, folder, flags, error);
}

CUKILN_EXPORTED int nvrtcCreateProgram(Handle* program, const char* text, const char* name,
                                       int count, const char* const* headers,
                                       const char* const* names) {
  return call(&ProgramFunctions::create, &RealNvrtc::create, program, text, name, count, headers,
              names);
}
CUKILN_EXPORTED int nvrtcDestroyProgram(Handle* program) {
  return call(&ProgramFunctions::destroy, &RealNvrtc::destroy, program);
}
CUKILN_EXPORTED int nvrtcCompileProgram(Handle program, int count, const char* const* options) {
  return call(&ProgramFunctions::compile, &RealNvrtc::compile, program, count, options);
}
CUKILN_EXPORTED int nvrtcAddNameExpression(Handle program, const char* expression) {
  return call(&ProgramFunctions::add_name, &RealNvrtc::add_name, program, expression);
}
CUKILN_EXPORTED int nvrtcGetLoweredName(Handle program, const char* expression,
                                        const char** lowered) {
  return call(&ProgramFunctions::lowered_name, &RealNvrtc::lowered_name, program, expression,
              lowered);
}
CUKILN_EXPORTED int nvrtcGetPCHCreateStatus(Handle program) {
  return call(&ProgramFunctions::pch_status, &RealNvrtc::pch_status, program);
}
CUKILN_EXPORTED int nvrtcGetPCHHeapSizeRequired(Handle program, std::size_t* bytes) {
  return call(&ProgramFunctions::pch_heap_required, &RealNvrtc::pch_heap_required, program, bytes);
}
CUKILN_EXPORTED int nvrtcSetFlowCallback(Handle program, int (*callback)(void*, void*),
                                         void* payload) {
  return call(&ProgramFunctions::set_flow_callback, &RealNvrtc::set_flow_callback, program,
              callback, payload);
}

CUKILN_EXPORTED int nvrtcGetProgramLogSize(Handle program, std::size_t* bytes) {
  return size_of(Part::log, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetProgramLog(Handle program, char* out) {
  return bytes_of(Part::log, program, out);
}
CUKILN_EXPORTED int nvrtcGetPTXSize(Handle program, std::size_t* bytes) {
  return size_of(Part::ptx, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetPTX(Handle program, char* out) {
  return bytes_of(Part::ptx, program, out);
}
CUKILN_EXPORTED int nvrtcGetCUBINSize(Handle program, std::size_t* bytes) {
  return size_of(Part::cubin, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetCUBIN(Handle program, char* out) {
  return bytes_of(Part::cubin, program, out);
}
CUKILN_EXPORTED int nvrtcGetLTOIRSize(Handle program, std::size_t* bytes) {
  return size_of(Part::lto_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetLTOIR(Handle program, char* out) {
  return bytes_of(Part::lto_ir, program, out);
}
CUKILN_EXPORTED int nvrtcGetOptiXIRSize(Handle program, std::size_t* bytes) {
  return size_of(Part::optix_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetOptiXIR(Handle program, char* out) {
  return bytes_of(Part::optix_ir, program, out);
}
CUKILN_EXPORTED int nvrtcGetNVVMSize(Handle program, std::size_t* bytes) {
  return size_of(Part::nvvm, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetNVVM(Handle program, char* out) {
  return bytes_of(Part::nvvm, program, out);
}
CUKILN_EXPORTED int nvrtcGetTileIRSize(Handle program, std::size_t* bytes) {
  return size_of(Part::tile_ir, program, bytes);
}
CUKILN_EXPORTED int nvrtcGetTileIR(Handle program, char* out) {
  return bytes_of(Part::tile_ir, program, out);
}
// NOLINTEND(readability-identifier-naming)
