// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

// Functions of a host, declared and not defined.
CUKILN_STD_FUNCTION int strcasecmp(const char*, const char*);
CUKILN_STD_FUNCTION int strncasecmp(const char*, const char*, size_t);
CUKILN_STD_FUNCTION void bzero(void*, size_t);
