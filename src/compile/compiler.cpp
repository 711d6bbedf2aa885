// SPDX-License-Identifier: Apache-2.0
#include "compile/compiler.hpp"

#include "base/result.hpp"

namespace cukiln {

Result<Toolchain> Compiler::linker() {
  return make_error(ErrorCode::incompatible,
                    "this process compiles without a compile worker (in_process_compile), and "
                    "modules are linked in workers only: leave out link, or in_process_compile");
}

}  // namespace cukiln
