// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// A key of a config.toml with its value as text; several for a list.
struct ConfigValue {
  std::string name;
  std::vector<std::string> values;
};

/// Parses a config.toml. Keys are ordered by name. Errors: invalid_argument, with line and reason.
Result<std::vector<ConfigValue>> parse_config(ByteView text, const std::string& path);

}  // namespace cukiln
