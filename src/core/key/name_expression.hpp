// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <cukiln/name_expression.hpp>

namespace cukiln {

/// True for what identifiers and numbers consist of, `$` and the bytes of UTF-8 included.
bool is_word_char(char c) noexcept;

/// Returns what NVRTC gets for a canonical spelling: `&ns::k<float, 4>`. Kernels may be named
/// with and without `&`, and give one cubin; variables that are no arrays only with it. Anything
/// but a plain name is returned as it is.
std::string address_expression(const std::string& canonical);

}  // namespace cukiln
