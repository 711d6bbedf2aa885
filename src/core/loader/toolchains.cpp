// SPDX-License-Identifier: Apache-2.0
#include "core/loader/toolchains.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/base/target_families.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/key/compile_request.hpp"

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

Result<std::vector<ChosenTarget>> Toolchains::usable_for(Target wanted, bool links) {
  auto present = choose_target(compiler_, wanted);
  if (present && links) {
    auto linker = compiler_.for_target(present->target).linker();
    if (!linker) {
      present = std::move(linker).error();
    } else {
      present->linker = *std::move(linker);
    }
  }
  if (present) {
    return std::vector<ChosenTarget>{*std::move(present)};
  }
  if (present.error().code() == ErrorCode::invalid_argument) {
    return std::move(present).error();
  }
  CUKILN_TRY(const std::vector<Stored> stored, of_entries());
  std::vector<ChosenTarget> usable;
  for (const Target target : target_and_families(wanted)) {
    std::set<ContentHash> seen;
    for (const Stored& one : stored) {
      if (links ? one.linker.has_value() : seen.insert(one.toolchain.content).second) {
        usable.push_back({target, one.toolchain, one.linker.value_or(Toolchain{})});
      }
    }
  }
  if (usable.empty()) {
    return std::move(present).error();
  }
  return usable;
}

Result<std::vector<Toolchains::Stored>> Toolchains::of_entries() {
  {
    const ForkSafeLock lock(mutex_);
    if (!stored_.empty()) {
      return stored_;
    }
  }
  CUKILN_TRY(const auto entries, store_.list());
  std::vector<Stored> stored;
  std::set<std::string> seen;
  for (const EntrySummary& summary : entries) {
    if (!seen.insert(summary.labels.compiler).second) {
      continue;
    }
    if (const Lookup entry = store_.peek(summary.key); entry && *entry) {
      if (const auto fields = RequestFields::parse((*entry)->request_canonical)) {
        stored.push_back(
            {fields->toolchain, fields->link ? std::optional(fields->link->linker) : std::nullopt});
      }
    }
  }
  const ForkSafeLock lock(mutex_);
  stored_ = stored;
  return stored;
}

}  // namespace cukiln
