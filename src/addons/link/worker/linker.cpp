// SPDX-License-Identifier: Apache-2.0
#include "core/worker/linker.hpp"

#include <unistd.h>

#include "addons/link/worker/linker_api.hpp"
#include "core/worker/clock.hpp"
#include "core/worker/served_files.hpp"

namespace cukiln::worker {

namespace {

constexpr const char* kLinkUnit = "/cukiln/src/link";

constexpr const char* kServedPart = "/cukiln/probe/part.ptx";
constexpr const char* kPart =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry cukiln_probe() { ret; }\n";

LinkerApi g_linker;

}  // namespace

wire::Hello open_linker(const std::string& library) {
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // it reports on both
  wire::Hello hello;
  hello.error = g_linker.open(library);
  if (hello.error.empty()) {
    g_linker.version(&hello.nvrtc_major, &hello.nvrtc_minor);
  }
  return hello;
}

wire::Probed probe_linker(const std::string& library) {
  wire::Probed probed;
  unsigned major = 0;
  unsigned minor = 0;
  const int known = g_linker.version(&major, &minor);
  LinkerApi::Handle handle = nullptr;
  const char* options[] = {"-arch=sm_90"};  // of every version
  const int created = known == 0 ? g_linker.create(&handle, 1, options) : known;
  if (created != 0) {
    probed.error = linker_error_text(created);
    return probed;
  }
  ServedFiles& files = ServedFiles::instance();
  files.begin(nullptr, kLinkUnit);
  files.add(kServedPart, kPart);
  const int served = g_linker.add_file(handle, static_cast<int>(LinkInputType::ptx), kServedPart);
  const int on_disk =
      g_linker.add_file(handle, static_cast<int>(LinkInputType::any), library.c_str());
  files.end();
  g_linker.destroy(&handle);
  probed.observed = served == 0 && on_disk != 0;
  probed.version = std::to_string(major) + "." + std::to_string(minor);
  return probed;
}

wire::Compiled link_observed(const wire::Link& job) {
  ServedFiles& files = ServedFiles::instance();
  files.begin(nullptr, kLinkUnit);  // nothing but the inputs is there
  fix_clock();
  wire::Compiled linked = link_with(g_linker, job);
  release_clock();
  files.end();
  return linked;
}

}  // namespace cukiln::worker
