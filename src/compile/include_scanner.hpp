// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "key/compile_request.hpp"

namespace cukiln {

/// An `#include` with a literal name, as written.
struct IncludeName {
  std::string_view name;
  bool quoted = false;
};

/// What a text is sure to include, more or less: literal names outside every conditional but a
/// guard around the whole. A guess about what will be asked, and never more: what is missed here is
/// asked for, and what is too much is not looked at.
std::vector<IncludeName> includes_in(ByteView text);

/// The virtual folders that `#include <…>` is looked for in, in order.
std::vector<std::string> include_folders_of(const CompileOptions& options);

}  // namespace cukiln
