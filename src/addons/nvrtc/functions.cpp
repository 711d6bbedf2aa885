// SPDX-License-Identifier: Apache-2.0
// What libcukiln_nvrtc forwards its calls to: the table of live programs, and a function for each
// call that checks the handle first.

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "addons/nvrtc/handles.hpp"
#include "addons/nvrtc/host.hpp"
#include "addons/nvrtc/link.hpp"
#include "addons/nvrtc/linker_functions.hpp"
#include "addons/nvrtc/nvrtc_functions.hpp"
#include "addons/nvrtc/program.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/make_compiler.hpp"
#include "core/loader/module_request.hpp"

#include <cukiln/export.hpp>
#include <cukiln/settings.hpp>

namespace cukiln::dropin {

namespace {

using Programs = Process<Host, Program>;

/// Runs a call. No exception leaves it.
template <class Body>
int call(Body&& body) noexcept {
  return guarded_call(kOutOfMemory, kInternalError, body);
}

/// Runs a call for a live program.
template <class Body>
int call_for(Handle handle, Body&& body) noexcept {
  return call([&] {
    const std::shared_ptr<Program> program = Programs::instance->live.find(handle);
    return program != nullptr ? body(*program) : kInvalidProgram;
  });
}

bool has_equal_names(const std::vector<std::pair<std::string, std::string>>& headers) {
  std::set<std::string_view> names;
  return !std::all_of(headers.begin(), headers.end(),
                      [&](const auto& header) { return names.insert(header.first).second; });
}

int create(const void* caller, Handle* program, const char* text, const char* name, int count,
           const char* const* headers, const char* const* names) {
  if (program == nullptr) {
    return kInvalidProgram;
  }
  if (text == nullptr || count < 0 || (count > 0 && (headers == nullptr || names == nullptr))) {
    return kInvalidInput;
  }
  return call([&] {
    std::vector<std::pair<std::string, std::string>> copied;
    for (int i = 0; i < count; ++i) {
      if (headers[i] == nullptr || names[i] == nullptr) {
        return kInvalidInput;
      }
      copied.emplace_back(names[i], headers[i]);
    }
    if (has_equal_names(copied)) {
      return kInvalidInput;
    }
    *program = Programs::instance->live.add(
        std::make_shared<Program>(Programs::instance->host, caller, text,
                                  name != nullptr ? name : "default_program", std::move(copied)));
    return kSuccess;
  });
}

int destroy(Handle* program) {
  return call([&] {
    if (program == nullptr || Programs::instance->live.remove(*program) == nullptr) {
      return kInvalidProgram;
    }
    *program = nullptr;
    return kSuccess;
  });
}

int compile(Handle handle, int count, const char* const* options) {
  return call_for(handle, [&](Program& program) { return program.compile(count, options); });
}
int add_name(Handle handle, const char* expression) {
  return call_for(handle, [&](Program& program) { return program.add_name(expression); });
}
int lowered_name(Handle handle, const char* expression, const char** lowered) {
  return call_for(handle,
                  [&](Program& program) { return program.lowered_name(expression, lowered); });
}
int size_of(Part part, Handle handle, std::size_t* bytes) {
  return call_for(handle, [&](Program& program) { return program.size(part, bytes); });
}
int bytes_of(Part part, Handle handle, char* out) {
  return call_for(handle, [&](Program& program) { return program.bytes(part, out); });
}
int pch_status(Handle handle) {
  return call_for(handle, [&](Program& program) { return program.pch_status(); });
}
int pch_heap_required(Handle handle, std::size_t* bytes) {
  return call_for(handle, [&](Program& program) { return program.pch_heap_required(bytes); });
}
int set_flow_callback(Handle handle, int (*callback)(void*, void*), void* payload) {
  return call_for(handle,
                  [&](Program& program) { return program.set_flow_callback(callback, payload); });
}

constexpr ProgramFunctions kFunctions = {
    create,  destroy,  compile,    add_name,          lowered_name,
    size_of, bytes_of, pch_status, pch_heap_required, set_flow_callback};

bool copy(const std::string& from, char (&to)[PATH_MAX]) {
  if (from.size() >= sizeof to) {
    return false;
  }
  std::memcpy(to, from.c_str(), from.size() + 1);
  return true;
}

bool find_program_library(const char* opened, FoundLibrary& found) {
  auto settings = Settings::load();
  LoaderOptions options = settings ? std::move(settings->loader) : LoaderOptions();
  if (opened != nullptr) {
    options.nvrtc_library = absolute_path(opened);
  }
  auto install = find_nvrtc(nvrtc_search(options));
  if (!install && opened == nullptr) {
    options.nvrtc_library.clear();  // it is no file: the program has what it has without cukiln
    install = find_nvrtc(nvrtc_search(options));
  }
  return install && copy(install->library, found.library) &&
         copy(install->builtins, found.builtins);
}

/// As a module's link does, for the NVRTC that a program of this process would get.
bool find_linker_library(const char* opened, FoundLibrary& found) {
  FoundLibrary nvrtc{};
  if (opened != nullptr || addons().link_tool == nullptr) {
    return false;
  }
  static_cast<void>(find_program_library(nullptr, nvrtc));
  auto settings = Settings::load();
  const NvrtcSearch search = nvrtc_search(settings ? settings->loader : LoaderOptions());
  const auto library = addons().link_tool->find(nvrtc.library, search);
  return library && copy(*library, found.library);
}

const void* open_programs(const void* real, const char* report) {
  const bool opened = Programs::open(*static_cast<const RealNvrtc*>(real), report);
  return opened ? &kFunctions : nullptr;
}

}  // namespace

}  // namespace cukiln::dropin

extern "C" CUKILN_API bool cukiln_nvrtc_find(std::uint32_t version, const char* opened,
                                             cukiln::dropin::FoundLibrary* found) {
  using namespace cukiln::dropin;
  const auto find = version == kInterface       ? find_program_library
                    : version == kLinkInterface ? find_linker_library
                                                : nullptr;
  return find != nullptr && found != nullptr &&
         call([&] { return find(opened, *found) ? kSuccess : kInternalError; }) == kSuccess;
}

extern "C" CUKILN_API const void* cukiln_nvrtc_open(std::uint32_t version, const void* real,
                                                    const char* report) {
  using namespace cukiln::dropin;
  if (real == nullptr) {
    return nullptr;
  }
  return version == kInterface       ? open_programs(real, report)
         : version == kLinkInterface ? open_links(*static_cast<const RealLinker*>(real), report)
                                     : nullptr;
}
