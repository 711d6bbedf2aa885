// SPDX-License-Identifier: Apache-2.0
// Its place until 0.4; gone in 0.5.
#pragma once
#include <cukiln/nvfp4/nvfp4.hpp>
