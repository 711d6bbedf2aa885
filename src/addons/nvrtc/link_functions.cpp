// SPDX-License-Identifier: Apache-2.0
// What libcukiln_nvjitlink forwards its calls to: the table of live links, and a function for each
// call that checks the handle first.

#include <cstdint>
#include <memory>
#include <utility>

#include "addons/nvrtc/handles.hpp"
#include "addons/nvrtc/link.hpp"
#include "addons/nvrtc/linker_functions.hpp"

namespace cukiln::dropin {

namespace links {  // the names are those of functions.cpp

namespace {

using Links = Process<LinkHost, Link>;

/// Runs a call. No exception leaves it.
template <class Body>
int run(Body&& body) noexcept {
  return guarded_call(kLinkInternalError, kLinkInternalError, body);
}

/// Calls a live link, or the real nvJitLink for a null handle, for which it has an error.
template <class Ours, class Real, class... Arguments>
int call(Handle handle, Ours Link::*ours, Real RealLinker::*real, Arguments... arguments) {
  return run([&] {
    if (handle == nullptr) {
      return (Links::instance->host.real().*real)(handle, arguments...);
    }
    const std::shared_ptr<Link> link = Links::instance->live.find(handle);
    return link != nullptr ? (link.get()->*ours)(arguments...) : kLinkInvalidInput;
  });
}

int create(const void* caller, Handle* handle, std::uint32_t count, const char* const* options) {
  return run([&] {
    if (handle == nullptr) {
      return Links::instance->host.real().create(handle, count, options);
    }
    auto link = std::make_shared<Link>(Links::instance->host, caller);
    const int code = link->create(count, options);
    if (link->has_handle()) {  // also of options that it refused: it has the log
      *handle = Links::instance->live.add(std::move(link));
    }
    return code;
  });
}

int destroy(Handle* handle) {
  return run([&] {
    if (handle == nullptr || *handle == nullptr) {
      return Links::instance->host.real().destroy(handle);
    }
    const std::shared_ptr<Link> link = Links::instance->live.remove(*handle);
    if (link == nullptr) {
      return kLinkInvalidInput;
    }
    *handle = nullptr;
    return link->destroy();
  });
}

int add_data(Handle handle, int type, const void* data, std::size_t bytes, const char* name) {
  return call(handle, &Link::add_data, &RealLinker::add_data, type, data, bytes, name);
}
int add_file(Handle handle, int type, const char* path) {
  return call(handle, &Link::add_file, &RealLinker::add_file, type, path);
}
int complete(Handle handle) { return call(handle, &Link::complete, &RealLinker::complete); }
int size_of(LinkPart part, Handle handle, std::size_t* bytes) {
  return call(handle, &Link::size, &RealLinker::size_of, part, bytes);
}
int bytes_of(LinkPart part, Handle handle, void* out) {
  return call(handle, &Link::bytes, &RealLinker::bytes_of, part, out);
}

constexpr LinkFunctions kFunctions = {create,   destroy, add_data, add_file,
                                      complete, size_of, bytes_of};

}  // namespace

}  // namespace links

const LinkFunctions* open_links(const RealLinker& real, const char* report) {
  return links::Links::open(real, report) ? &links::kFunctions : nullptr;
}

}  // namespace cukiln::dropin
