// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/last_error.hpp"
#include "bindings/c/structs.hpp"

#include <cukiln/nvfp4/nvfp4.h>
#include <cukiln/extension.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::to_code;

extern "C" {

cukiln_code cukiln_nvfp4_preload(cukiln_loader* loader, const cukiln_preload_options* options,
                                 cukiln_preload_report* report) {
  return to_code([&]() -> Result<void> {
    if (loader == nullptr) {
      return c::null_argument("loader");
    }
    return extension::preload(*loader, nvfp4::manifest(), options, report);
  });
}

const char* cukiln_nvfp4_source(const char* file_name, size_t* text_bytes) {
  const std::string_view wanted = file_name != nullptr ? file_name : "";
  const std::string_view found = nvfp4::shipped_text(wanted);
  if (text_bytes != nullptr) {
    *text_bytes = found.size();
  }
  return found.data();
}

}  // extern "C"
