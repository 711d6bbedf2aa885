// SPDX-License-Identifier: Apache-2.0
#include "core/loader/seal.hpp"

#include <algorithm>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/loader/explain_miss.hpp"
#include "core/loader/module_json.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxShownDifferences = 8;
constexpr std::size_t kMaxExplained = 256;
constexpr std::chrono::seconds kExplainedFor(1);

std::string text_of(const Explanation& explanation) {
  std::string text;
  const std::vector<Difference>& all = explanation.differences;
  for (std::size_t i = 0; i < std::min(all.size(), kMaxShownDifferences); ++i) {
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("none") : value;
    };
    text +=
        fmt::format("\n  {}: was {}, is {}", all[i].field, shown(all[i].was), shown(all[i].now));
  }
  if (all.size() > kMaxShownDifferences) {
    text += fmt::format("\n  and {} more differences", all.size() - kMaxShownDifferences);
  }
  if (explanation.nearest) {
    text += fmt::format("\n  compared with the entry {}", explanation.nearest->hex());
  }
  return text;
}

bool has_memory_text(const ModuleSpec& spec) {
  const auto is_text = [](const Source& source) { return text_of(source).has_value(); };
  return std::any_of(spec.sources.begin(), spec.sources.end(), is_text) ||
         std::any_of(spec.headers.begin(), spec.headers.end(), is_text) ||
         !spec.named_headers.empty();
}

/// What a host has to do so that a module is ready before `seal()`.
std::string advice_for(const ModuleRequest& request) {
  const std::string line = request.spec != nullptr
                               ? manifest_line(*request.spec, request.request.target)
                               : std::string();
  if (line.empty()) {
    return "preload it before, or seal with SealPolicy::warn";
  }
  return fmt::format(
      "preload it as it is now, with this line in the manifest's \"modules\"{}, or seal with "
      "SealPolicy::warn:\n  {}",
      has_memory_text(*request.spec)
          ? " once its texts, which are in memory here, are files ('cukiln record' writes them)"
          : "",
      line);
}

}  // namespace

Result<void> Seal::check_compile(const ModuleRequest& request, const Miss& miss) {
  return is_set() ? violate("a compile of", request, explain(request, miss)) : Result<void>();
}

Result<void> Seal::check_load(const ModuleRequest& request, const CacheKey& key) {
  return is_set()
             ? violate("a load of", request,
                       fmt::format("it is ready as {} and no preload had loaded it", key.hex()))
             : Result<void>();
}

Result<void> Seal::violate(const char* what, const ModuleRequest& request, const std::string& why) {
  const std::string target = request.request.target.name();
  events_.add([&] {
    Event event;
    event.kind = EventKind::sealed;
    event.module = request.name;
    event.target = request.request.target;
    event.reason = fmt::format("{} {}: {}", what, request.name, why);
    event.failed = state_.load(std::memory_order_relaxed) == State::fail;
    return event;
  });
  if (state_.load(std::memory_order_relaxed) == State::warn) {
    telemetry_.count(&Stats::sealed_violations);
    log_.warn("{} {} for {} after seal() delays the hot path: {}; {}", what, request.name, target,
              why, advice_for(request));
    return {};
  }
  return make_error(ErrorCode::sealed, "{} {} for {} was needed after seal(): {}; {}", what,
                    request.name, target, why, advice_for(request));
}

std::string Seal::explain(const ModuleRequest& request, const Miss& miss) {
  const std::string why = miss.text();
  const auto now = std::chrono::steady_clock::now();
  {
    const ForkSafeLock lock(mutex_);
    const auto known = explained_.find(request.digest);
    if (known != explained_.end() && known->second.miss == why &&
        now - known->second.when < kExplainedFor) {
      return known->second.text;
    }
  }
  const auto explanation = explain_miss(request, miss, tiers_, stat_cache_, nullptr);
  std::string text = why + (explanation ? text_of(*explanation) : std::string());
  const ForkSafeLock lock(mutex_);
  if (explained_.size() >= kMaxExplained) {
    explained_.clear();
  }
  explained_.insert_or_assign(request.digest, Explained{why, text, now});
  return text;
}

}  // namespace cukiln
