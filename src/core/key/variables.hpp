// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/bytes.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/variable_info.hpp>

namespace cukiln {

/// Marks those of an image's named symbols that are variables, not kernels: in the stored list they
/// are beside the kernels (cache/FORMAT.md, "Kernels"). Symbols that are marked stay so; an image
/// that is no cubin changes nothing.
void mark_variables(ByteView image, std::vector<KernelInfo>& symbols);

bool is_variable(const KernelInfo& symbol) noexcept;

/// The kernels of a list, and its variables, each in their order.
std::vector<KernelInfo> kernels_among(const std::vector<KernelInfo>& symbols);
std::vector<VariableInfo> variables_among(const std::vector<KernelInfo>& symbols);

}  // namespace cukiln
