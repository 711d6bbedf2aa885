// SPDX-License-Identifier: Apache-2.0
#include <cukiln/module.hpp>

#include <optional>

#include "core/base/result.hpp"
#include "core/driver/module.hpp"

#include <cukiln/name_expression.hpp>

namespace cukiln {

std::vector<Kernel> Module::kernels() const {
  return loaded_ != nullptr ? loaded_->kernels() : std::vector<Kernel>();
}

namespace {

Result<Global> global_of(const LoadedModule* loaded, std::string_view name,
                         std::optional<int> ordinal) {
  return guarded([&]() -> Result<Global> {
    if (loaded == nullptr) {
      return make_error(ErrorCode::invalid_argument,
                        "an empty Module has no variable \"{}\"; expected one of a KernelLoader",
                        name);
    }
    return loaded->global(canonical_name(name), ordinal);
  });
}

}  // namespace

Result<Global> Module::global(std::string_view name, int ordinal) const {
  return global_of(loaded_, name, ordinal);
}

Result<Global> Module::global(std::string_view name) const {
  return global_of(loaded_, name, std::nullopt);
}

}  // namespace cukiln
