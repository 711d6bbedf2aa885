// SPDX-License-Identifier: Apache-2.0
#include "core/compile/choose_target.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/target_families.hpp"
#include "core/compile/nvrtc_library.hpp"

namespace cukiln {

namespace {

std::string joined_names(const std::vector<Target>& targets) {
  std::string text;
  for (const Target target : targets) {
    text += (text.empty() ? "" : ", ") + target.name();
  }
  return text;
}

}  // namespace

Result<ChosenTarget> choose_target(Compiler& compiler, Target wanted) {
  std::vector<Target> candidates = target_and_families(wanted);
  std::vector<Target> known;
  for (const Target candidate : candidates) {
    Compiler& chosen = compiler.for_target(candidate);
    CUKILN_TRY(known, chosen.targets());
    if (known.empty() || std::find(known.begin(), known.end(), candidate) != known.end()) {
      CUKILN_TRY(Toolchain toolchain, chosen.toolchain());
      return ChosenTarget{candidate, std::move(toolchain)};
    }
  }
  CUKILN_TRY(known, compiler.for_target(wanted).targets());
  CUKILN_TRY(const Toolchain toolchain, compiler.for_target(wanted).toolchain());
  candidates.erase(candidates.begin());
  const std::string families =
      candidates.empty() ? "" : fmt::format(" nor its family ({})", joined_names(candidates));
  const auto [major, minor] = oldest_nvrtc_for(wanted);
  const std::string advice =
      is_older(toolchain.version, {major, minor})
          ? fmt::format("; install NVRTC {}.{} or later, or set CUKILN_NVRTC_LIBRARY to its path",
                        major, minor)
          : "";
  return make_error(ErrorCode::invalid_argument,
                    "NVRTC {} does not support the target {}{}; it supports {}{}",
                    toolchain.version, wanted.name(), families, joined_names(known), advice);
}

}  // namespace cukiln
