// SPDX-License-Identifier: Apache-2.0
// What SGLang's headers name of tvm-ffi, declared and not defined.
#pragma once

#include <cstdint>

extern "C" void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
