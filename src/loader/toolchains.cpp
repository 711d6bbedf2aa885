// SPDX-License-Identifier: Apache-2.0
#include "loader/toolchains.hpp"

#include <set>
#include <string>
#include <utility>

#include "base/fork_gate.hpp"
#include "base/result.hpp"
#include "base/target_families.hpp"
#include "key/compile_request.hpp"

namespace cukiln {

Result<std::vector<ChosenTarget>> Toolchains::usable_for(Target wanted) {
  auto present = choose_target(compiler_, wanted);
  if (present) {
    return std::vector<ChosenTarget>{*std::move(present)};
  }
  if (present.error().code() == ErrorCode::invalid_argument) {
    return std::move(present).error();
  }
  CUKILN_TRY(const std::vector<Toolchain> stored, of_entries());
  if (stored.empty()) {
    return std::move(present).error();
  }
  std::vector<ChosenTarget> usable;
  for (const Target target : target_and_families(wanted)) {
    for (const Toolchain& toolchain : stored) {
      usable.push_back({target, toolchain});
    }
  }
  return usable;
}

Result<std::vector<Toolchain>> Toolchains::of_entries() {
  {
    const ForkSafeLock lock(mutex_);
    if (!stored_.empty()) {
      return stored_;
    }
  }
  CUKILN_TRY(const auto entries, store_.list());
  std::vector<Toolchain> stored;
  std::set<std::string> seen;
  for (const EntrySummary& summary : entries) {
    if (!seen.insert(summary.labels.compiler).second) {
      continue;
    }
    if (const Lookup entry = store_.peek(summary.key); entry && *entry) {
      if (const auto fields = RequestFields::parse((*entry)->request_canonical)) {
        stored.push_back(fields->toolchain);
      }
    }
  }
  const ForkSafeLock lock(mutex_);
  stored_ = stored;
  return stored;
}

}  // namespace cukiln
