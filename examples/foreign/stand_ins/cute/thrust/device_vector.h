// SPDX-License-Identifier: Apache-2.0
#include <thrust/host_vector.h>
