// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>

namespace cukiln::kernels {

/// A shipped kernel: the one that is loaded already, else compiled and loaded now.
/// Errors: not_found (no such module in this build), those of `KernelLoader::get`.
inline Result<Kernel> shipped_kernel(KernelLoader& loader, const std::string& module,
                                     const std::string& kernel) {
  if (const Kernel loaded = loader.kernels().find(module + "/" + kernel)) {
    return loaded;
  }
  const Manifest shipped = nvfp4::manifest();
  for (const ModuleSpec& spec : shipped.modules()) {
    if (spec.name == module) {
      return loader.get(spec, kernel);
    }
  }
  return make_error(ErrorCode::not_found, "this build of cukiln ships no module {}", module);
}

}  // namespace cukiln::kernels
