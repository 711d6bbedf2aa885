// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

using std::max_align_t;
using std::nullptr_t;
using std::ptrdiff_t;
