// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <cukiln/module_spec.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// `none`, `rdc` or `lto`.
const char* name_of(LinkMode mode) noexcept;

/// Returns a module for a target with absolute paths and canonical flags, as `cukiln record` keeps
/// it: the fields of a manifest, but sources and headers are objects (`path`, and `text` if it is
/// in memory), and there is one `target`. Null if the flags are wrong or there is no source.
nlohmann::json module_json(const ModuleSpec& spec, Target target);

/// Returns a module for a target as one line of a manifest's `modules`, with absolute paths. A
/// source in memory is there by its name. Empty if the flags are wrong or there is no source.
std::string manifest_line(const ModuleSpec& spec, Target target);

}  // namespace cukiln
