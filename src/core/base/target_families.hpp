// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include <cukiln/target.hpp>

namespace cukiln {

// Header-only, because libcukiln_nvfp4 uses it too.

/// Returns the first compute capability of a device's family: 100 for 103 and 107, 120 for 121.
/// 101, which CUDA 13 calls 110, is a family of its own. Source: PTX ISA, "Family-specific
/// architectures".
constexpr int family_of(int capability) noexcept {
  return capability == 101 ? capability : capability / 10 * 10;
}

/// Returns a target, followed by those that may stand in for it, best first: the family target of
/// the same capability, then that of the family's first. There are families from sm_100 on.
inline std::vector<Target> target_and_families(Target wanted) {
  constexpr int kFirstFamily = 100;
  std::vector<Target> targets{wanted};
  if (wanted.capability >= kFirstFamily) {
    for (const Target family :
         {Target{wanted.capability, 'f'}, Target{family_of(wanted.capability), 'f'}}) {
      if (std::find(targets.begin(), targets.end(), family) == targets.end()) {
        targets.push_back(family);
      }
    }
  }
  return targets;
}

}  // namespace cukiln
