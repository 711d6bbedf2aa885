// SPDX-License-Identifier: Apache-2.0
// The functions of nvJitLink 12.8 to 13.5. Each has a name for every version besides: nvJitLink's
// header makes calls of the one of its own. A function that the real nvJitLink lacks is an internal
// error.

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "addons/nvrtc/library/real_library.hpp"
#include "addons/nvrtc/linker_functions.hpp"

#define CUKILN_EXPORTED extern "C" __attribute__((visibility("default")))

namespace cukiln::binding {

using dropin::Handle;
using dropin::kLinkInternalError;
using dropin::LinkFunctions;
using dropin::LinkPart;
using dropin::RealLinker;

struct Api {
  RealLinker real;
  const LinkFunctions* links = nullptr;
  void* (*private_api)(void*, void*, void*, void*, void*, void*) = nullptr;
  unsigned major = 0;
};

namespace {

const char* environment_of_results() {
  static constexpr const char* kVariables[] = {"NVJITLINK_TRACE_MESSAGES=", nullptr};
  return find_variable(kVariables);
}

bool is_known_version(void* handle) {
  constexpr unsigned kNewestMajor = 13;
  constexpr unsigned kNewestMinor = 5;
  int (*version)(unsigned*, unsigned*) = nullptr;
  find_function(version, handle, "nvJitLinkVersion");
  unsigned major = 0;
  unsigned minor = 0;
  return version != nullptr && version(&major, &minor) == 0 &&
         (major < kNewestMajor || (major == kNewestMajor && minor <= kNewestMinor));
}

struct Loaded {
  unsigned major;
  const char* path;
};

int find_major(dl_phdr_info* info, std::size_t /*size*/, void* out) {
  auto& loaded = *static_cast<Loaded*>(out);
  char end[32];
  std::snprintf(end, sizeof end, ".so.%u", loaded.major);
  const char* const found = info->dlpi_name != nullptr && is_peer(info->dlpi_name)
                                ? std::strstr(info->dlpi_name, end)
                                : nullptr;
  if (found == nullptr || (found[std::strlen(end)] != '\0' && found[std::strlen(end)] != '.')) {
    return 0;
  }
  loaded.path = info->dlpi_name;
  return 1;
}

/// A library that was linked with one major version calls that by name, and gets it, as it is,
/// where the process has another one in front.
const Api& api_of_version(const void* caller, unsigned major) {
  static std::atomic<const Api*> others[2];
  const Api& usual = api_for(caller);
  if (major == 0 || usual.major == major || usual.major == 0) {
    return usual;
  }
  std::atomic<const Api*>& other = others[major % 2];
  if (other == nullptr) {
    Loaded loaded{major, nullptr};
    ::dl_iterate_phdr(find_major, &loaded);
    void* const handle =
        loaded.path != nullptr ? open_library(loaded.path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    other = handle != nullptr ? make_own_api(handle) : &usual;
  }
  return *other;
}

template <class Function, class... Arguments>
int forward(Function function, Arguments... arguments) {
  return function != nullptr ? function(arguments...) : kLinkInternalError;
}

template <class Function, class... Arguments>
int call(const Api& api, Function LinkFunctions::*ours, Function RealLinker::*real,
         Arguments... arguments) {
  return api.links != nullptr ? (api.links->*ours)(arguments...)
                              : forward(api.real.*real, arguments...);
}

int create(const Api& api, const void* caller, Handle* handle, std::uint32_t count,
           const char* const* options) {
  return api.links != nullptr ? api.links->create(caller, handle, count, options)
                              : forward(api.real.create, handle, count, options);
}
int size_of(const Api& api, LinkPart part, Handle handle, std::size_t* bytes) {
  return api.links != nullptr ? api.links->size(part, handle, bytes)
                              : api.real.size_of(handle, part, bytes);
}
int bytes_of(const Api& api, LinkPart part, Handle handle, void* out) {
  return api.links != nullptr ? api.links->bytes(part, handle, out)
                              : api.real.bytes_of(handle, part, out);
}

}  // namespace

const Peer kPeer = {"libnvJitLink.so", "nvJitLinkComplete",    "CUKILN_NVJITLINK_LIBRARY",
                    "own-nvjitlink",   dropin::kLinkInterface, is_known_version};

namespace {

Api* find_functions(void* handle) {
  auto* const api = new Api;
  if (handle == nullptr) {
    return api;
  }
  RealLinker& real = api->real;
  real.library = path_of(handle);
  real.environment_of_results = environment_of_results;
  find_function(real.version, handle, "nvJitLinkVersion");
  find_function(real.create, handle, "nvJitLinkCreate");
  find_function(real.destroy, handle, "nvJitLinkDestroy");
  find_function(real.add_data, handle, "nvJitLinkAddData");
  find_function(real.add_file, handle, "nvJitLinkAddFile");
  find_function(real.complete, handle, "nvJitLinkComplete");
  constexpr const char* kNames[dropin::kLinkParts] = {"LinkedCubin", "LinkedPtx", "LinkedLTOIR",
                                                      "ErrorLog", "InfoLog"};
  find_getters(real.bytes, real.size, handle, "nvJitLinkGet", kNames);
  find_function(api->private_api, handle, "__nvJitLinkAPI");
  unsigned minor = 0;
  if (real.version == nullptr || real.version(&api->major, &minor) != 0) {
    api->major = 0;
  }
  return api;
}

}  // namespace

const Api* make_own_api(void* handle) { return find_functions(handle); }

const Api* make_api() {
  Api* const api = find_functions(open_real());
  const RealLinker& real = api->real;
  if (real.library != nullptr && real.create != nullptr && real.destroy != nullptr &&
      real.add_data != nullptr && real.add_file != nullptr && real.complete != nullptr) {
    api->links = static_cast<const LinkFunctions*>(open_functions(&real));
  }
  return api;
}

}  // namespace cukiln::binding

using namespace cukiln::binding;  // NOLINT: for the functions below

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): nvJitLink's names
#define CUKILN_VERSION(name, version, of) \
  CUKILN_EXPORTED __attribute__((alias(of))) decltype(nvJitLink##name) __nvJitLink##name##_##version
#define CUKILN_FUNCTION(name, parameters, ...)              \
  CUKILN_EXPORTED int nvJitLink##name parameters {          \
    const void* const caller = __builtin_return_address(0); \
    const Api& api = api_of_version(caller, 0);             \
    return __VA_ARGS__;                                     \
  }                                                         \
  CUKILN_EXPORTED int __nvJitLink##name##_12_0 parameters { \
    const void* const caller = __builtin_return_address(0); \
    const Api& api = api_of_version(caller, 12);            \
    return __VA_ARGS__;                                     \
  }                                                         \
  CUKILN_EXPORTED int __nvJitLink##name##_13_0 parameters { \
    const void* const caller = __builtin_return_address(0); \
    const Api& api = api_of_version(caller, 13);            \
    return __VA_ARGS__;                                     \
  }                                                         \
  CUKILN_VERSION(name, 12_1, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_2, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_3, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_4, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_5, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_6, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_7, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_8, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 12_9, "__nvJitLink" #name "_12_0");  \
  CUKILN_VERSION(name, 13_1, "__nvJitLink" #name "_13_0");  \
  CUKILN_VERSION(name, 13_2, "__nvJitLink" #name "_13_0");  \
  CUKILN_VERSION(name, 13_3, "__nvJitLink" #name "_13_0");  \
  CUKILN_VERSION(name, 13_4, "__nvJitLink" #name "_13_0");  \
  CUKILN_VERSION(name, 13_5, "__nvJitLink" #name "_13_0")

CUKILN_FUNCTION(Create, (Handle * handle, std::uint32_t count, const char* const* options),
                create(api, caller, handle, count, options));
CUKILN_FUNCTION(Destroy, (Handle * handle),
                call(api, &LinkFunctions::destroy, &RealLinker::destroy, handle));
CUKILN_FUNCTION(AddData,
                (Handle handle, int type, const void* data, std::size_t bytes, const char* name),
                call(api, &LinkFunctions::add_data, &RealLinker::add_data, handle, type, data,
                     bytes, name));
CUKILN_FUNCTION(AddFile, (Handle handle, int type, const char* path),
                call(api, &LinkFunctions::add_file, &RealLinker::add_file, handle, type, path));
CUKILN_FUNCTION(Complete, (Handle handle),
                call(api, &LinkFunctions::complete, &RealLinker::complete, handle));
CUKILN_FUNCTION(GetLinkedCubinSize, (Handle handle, std::size_t* bytes),
                size_of(api, LinkPart::cubin, handle, bytes));
CUKILN_FUNCTION(GetLinkedCubin, (Handle handle, void* out),
                bytes_of(api, LinkPart::cubin, handle, out));
CUKILN_FUNCTION(GetLinkedPtxSize, (Handle handle, std::size_t* bytes),
                size_of(api, LinkPart::ptx, handle, bytes));
CUKILN_FUNCTION(GetLinkedPtx, (Handle handle, void* out),
                bytes_of(api, LinkPart::ptx, handle, out));
CUKILN_FUNCTION(GetLinkedLTOIRSize, (Handle handle, std::size_t* bytes),
                size_of(api, LinkPart::lto_ir, handle, bytes));
CUKILN_FUNCTION(GetLinkedLTOIR, (Handle handle, void* out),
                bytes_of(api, LinkPart::lto_ir, handle, out));
CUKILN_FUNCTION(GetErrorLogSize, (Handle handle, std::size_t* bytes),
                size_of(api, LinkPart::error_log, handle, bytes));
CUKILN_FUNCTION(GetErrorLog, (Handle handle, void* out),
                bytes_of(api, LinkPart::error_log, handle, out));
CUKILN_FUNCTION(GetInfoLogSize, (Handle handle, std::size_t* bytes),
                size_of(api, LinkPart::info_log, handle, bytes));
CUKILN_FUNCTION(GetInfoLog, (Handle handle, void* out),
                bytes_of(api, LinkPart::info_log, handle, out));

CUKILN_EXPORTED int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  return forward(api_for(__builtin_return_address(0)).real.version, major, minor);
}
/// What NVIDIA's own libraries use; it is not described.
CUKILN_EXPORTED void* __nvJitLinkAPI(void* a, void* b, void* c, void* d, void* e, void* f) {
  const auto real = api_for(__builtin_return_address(0)).private_api;
  return real != nullptr ? real(a, b, c, d, e, f) : nullptr;
}
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)
