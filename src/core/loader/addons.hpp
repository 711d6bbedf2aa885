// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/base/logger.hpp"
#include "core/compile/link_tool.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/loader/module_request.hpp"
#include "core/store/daemon_tier.hpp"
#include "core/store/remote_tier.hpp"

#include <cukiln/settings.hpp>

namespace cukiln {

/// A compiled part, and what a link takes over from its compile.
struct BuiltPart {
  Cubin cubin;
  DependencySet dependencies;
  bool observed = true;
  bool uses_time = false;
};
/// Finds the entry of a part, or compiles it. Threads: safe.
using BuildPart = std::function<Result<BuiltPart>(const ModuleRequest& part)>;

/// What the add-ons do for the core. Each fills in its part in `register_<add-on>`; a member is
/// null in a build without the add-on.
struct Registry {
  /// cukilnd's store.
  std::unique_ptr<DaemonTier> (*open_daemon)(DaemonTier::Options options) = nullptr;
  /// A compiler in the daemon of that tier, which outlives it; `here` compiles what it declines.
  std::unique_ptr<Compiler> (*compile_in_daemon)(DaemonTier& daemon,
                                                 std::unique_ptr<NvrtcCompiler> here,
                                                 Logger log) = nullptr;
  /// The fleet's stores; null if the settings name none. Does not use the network. Errors:
  /// invalid_argument (an address, a key, no key at all), not_found, io.
  Result<std::unique_ptr<RemoteTier>> (*open_remote)(const RemoteSettings& settings,
                                                     const Logger& log) = nullptr;
  /// Links in an NvrtcCompiler.
  const LinkTool* link_tool = nullptr;
  /// Adds to a request that is complete otherwise what makes parts of its sources, and the objects
  /// of its spec. Errors: invalid_argument (an object without relocatable code), not_found, io.
  Result<void> (*add_link)(const ModuleSpec& spec, LinkMode mode, const Toolchain& linker,
                           ModuleRequest& out) = nullptr;
  /// Builds the parts of a request that links, up to `threads` of them concurrently. `files` tells
  /// which observed paths are one file. Errors: those of `build`.
  Result<LinkParts> (*build_parts)(const ModuleRequest& whole, FileServer& files,
                                   const BuildPart& build, std::size_t threads) = nullptr;
};

/// The add-ons that are linked to this library or program. CMake writes its definition.
const Registry& addons();

/// Opens the remote stores that the settings name. Errors: those of Registry::open_remote;
/// not_found (there are some, and the build is without the fleet).
inline Result<std::unique_ptr<RemoteTier>> open_remote(const RemoteSettings& settings,
                                                       const Logger& log) {
  if (addons().open_remote != nullptr) {
    return addons().open_remote(settings, log);
  }
  if (settings.stores.empty()) {
    return std::unique_ptr<RemoteTier>();
  }
  return Error(ErrorCode::not_found,
               "remote names a store, and this cukiln was built without src/addons/fleet; unset "
               "remote, or build it with that folder");
}

/// Checks that this build has what links a module. Errors: not_found.
inline Result<void> check_can_link(const std::string& module) {
  if (addons().add_link != nullptr) {
    return {};
  }
  return Error(ErrorCode::not_found,
               "module \"" + module +
                   "\" is to be linked (link, -rdc or -dlto), and this cukiln was built without "
                   "src/addons/link; leave link out, or build it with that folder");
}

}  // namespace cukiln
