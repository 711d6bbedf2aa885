// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

/// An `#include` with a literal name, as written.
struct IncludeName {
  std::string_view name;
  bool quoted = false;
};

/// Finds the files that a text probably includes: literal names outside every conditional except an
/// include guard. They are sent to the worker ahead of its questions. That is an optimisation only:
/// the worker asks for what is missing here, and what it never accesses is not a dependency.
std::vector<IncludeName> includes_in(ByteView text);

/// Returns the folders in which NVRTC searches for `#include <…>`, in order; of a program's those
/// with an absolute name.
std::vector<std::string> include_folders_of(const CompileOptions& options);

}  // namespace cukiln
