// SPDX-License-Identifier: Apache-2.0
// What libcukiln_nvjitlink forwards its calls to: the table of live links, and a function for each
// call that checks the handle first.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "addons/nvrtc/handles.hpp"
#include "addons/nvrtc/link.hpp"
#include "addons/nvrtc/linker_functions.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"

namespace cukiln::dropin {

namespace links {  // the names are those of functions.cpp

namespace {

// Never destroyed: threads of the host may link while the process ends.
LinkHost* g_host = nullptr;
constinit Mutex g_host_mutex;  // while it is made
Handles<Link>& all_links() {
  static auto* const all = new Handles<Link>;
  return *all;
}

/// Runs a call. No exception leaves it.
template <class Body>
int run(Body&& body) noexcept {
  return guarded_call(kLinkInternalError, kLinkInternalError, body);
}

/// Runs `body` for a live link, and `real` for a null handle, for which nvJitLink has an error.
template <class Body, class Real>
int call_for(Handle handle, Body&& body, Real&& real) noexcept {
  return run([&] {
    if (handle == nullptr) {
      return real(g_host->real());
    }
    const std::shared_ptr<Link> link = all_links().find(handle);
    return link != nullptr ? body(*link) : kLinkInvalidInput;
  });
}

int create(const void* caller, Handle* handle, std::uint32_t count, const char* const* options) {
  return run([&] {
    if (handle == nullptr) {
      return g_host->real().create(handle, count, options);
    }
    auto link = std::make_shared<Link>(*g_host, caller);
    const int code = link->create(count, options);
    if (link->has_handle()) {  // also of options that it refused: it has the log
      *handle = all_links().add(std::move(link));
    }
    return code;
  });
}

int destroy(Handle* handle) {
  return run([&] {
    if (handle == nullptr || *handle == nullptr) {
      return g_host->real().destroy(handle);
    }
    const std::shared_ptr<Link> link = all_links().remove(*handle);
    if (link == nullptr) {
      return kLinkInvalidInput;
    }
    *handle = nullptr;
    return link->destroy();
  });
}

int add_data(Handle handle, int type, const void* data, std::size_t bytes, const char* name) {
  return call_for(
      handle, [&](Link& link) { return link.add_data(type, data, bytes, name); },
      [&](const RealLinker& real) { return real.add_data(handle, type, data, bytes, name); });
}
int add_file(Handle handle, int type, const char* path) {
  return call_for(
      handle, [&](Link& link) { return link.add_file(type, path); },
      [&](const RealLinker& real) { return real.add_file(handle, type, path); });
}
int complete(Handle handle) {
  return call_for(
      handle, [](Link& link) { return link.complete(); },
      [&](const RealLinker& real) { return real.complete(handle); });
}
int size_of(LinkPart part, Handle handle, std::size_t* bytes) {
  return call_for(
      handle, [&](Link& link) { return link.size(part, bytes); },
      [&](const RealLinker& real) {
        const auto function = real.size[static_cast<int>(part)];
        return function != nullptr ? function(handle, bytes) : kLinkInternalError;
      });
}
int bytes_of(LinkPart part, Handle handle, void* out) {
  return call_for(
      handle, [&](Link& link) { return link.bytes(part, out); },
      [&](const RealLinker& real) {
        const auto function = real.bytes[static_cast<int>(part)];
        return function != nullptr ? function(handle, out) : kLinkInternalError;
      });
}

constexpr LinkFunctions kFunctions = {create,   destroy, add_data, add_file,
                                      complete, size_of, bytes_of};

}  // namespace

const LinkFunctions* open(const RealLinker& real, const char* report) {
  const int opened = run([&] {
    const ForkSafeLock lock(g_host_mutex);
    if (g_host == nullptr) {
      static_cast<void>(all_links());
      g_host = new LinkHost(real, report);
      std::atexit([] { g_host->close(); });
    }
    return 0;
  });
  return opened == 0 ? &kFunctions : nullptr;
}

}  // namespace links

const LinkFunctions* open_links(const RealLinker& real, const char* report) {
  return links::open(real, report);
}

}  // namespace cukiln::dropin
