// SPDX-License-Identifier: Apache-2.0
#include "loader/toolchains.hpp"

#include <set>
#include <string>
#include <utility>

#include "base/fork_gate.hpp"
#include "base/result.hpp"
#include "key/compile_request.hpp"

namespace cukiln {

Result<std::vector<Toolchain>> Toolchains::usable_for(Target target) {
  auto present = compiler_.for_target(target).toolchain();
  if (present) {
    return std::vector<Toolchain>{*std::move(present)};
  }
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
  if (stored.empty()) {
    return std::move(present).error();
  }
  const ForkSafeLock lock(mutex_);
  stored_ = stored;
  return stored;
}

}  // namespace cukiln
