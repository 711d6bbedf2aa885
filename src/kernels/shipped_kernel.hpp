#pragma once

#include <map>
#include <string>

#include "base/result.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::kernels {

/// A shipped kernel: the one that is loaded already, else compiled and loaded now. `variant` and
/// `define` make a further module of the same source.
/// Errors: not_found (no such module in this build), those of `KernelLoader::get`.
inline Result<Kernel> shipped_kernel(KernelLoader& loader, const std::string& module,
                                     const std::string& kernel, const std::string& variant = {},
                                     const std::map<std::string, std::string>& define = {}) {
  const std::string name = module + variant;
  if (const Kernel loaded = loader.kernels().find(name + "/" + kernel)) {
    return loaded;
  }
  const Manifest manifest = Manifest::shipped();
  for (const ModuleSpec& shipped : manifest.modules()) {
    if (shipped.name == module) {
      ModuleSpec spec = shipped;
      spec.name = name;
      spec.define.insert(define.begin(), define.end());
      return loader.get(spec, kernel);
    }
  }
  return make_error(ErrorCode::not_found, "this build of cukiln ships no module {}", module);
}

}  // namespace cukiln::kernels
