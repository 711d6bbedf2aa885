#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.hpp"

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

}  // namespace cukiln
