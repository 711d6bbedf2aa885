// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thrust {

template <typename T>
class host_vector;
template <typename T>
class device_vector;

}  // namespace thrust
