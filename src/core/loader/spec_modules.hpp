// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/loader/loader_impl.hpp"

#include <cukiln/cancel_token.hpp>

namespace cukiln {

/// The modules of a spec that devices run, one for each target.
struct SpecModules {
  std::string name;
  std::vector<std::shared_ptr<LoadedModule>> modules;  ///< never empty

  /// Compiles and loads what is not yet, and puts the kernels into the table. Errors: as
  /// KernelLoader::get.
  static Result<SpecModules> load(KernelLoader::Impl& loader, const ModuleSpec& spec,
                                  const std::optional<CancelToken>& cancel);

  /// Returns a kernel by a name in any spelling; by an empty one if there is only one kernel.
  /// Errors: not_found, invalid_argument.
  Result<Kernel> find(std::string_view kernel) const;
};

}  // namespace cukiln
