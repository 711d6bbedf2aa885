// SPDX-License-Identifier: Apache-2.0
#include "cli/uploads.hpp"

#include <chrono>

#include "cli/human.hpp"
#include "cli/remote_folders.hpp"
#include "core/store/remote_tier.hpp"

namespace cukiln::cli {

namespace {

constexpr std::chrono::milliseconds kRetryLimit{30'000};
constexpr std::chrono::milliseconds kHostLimit{5'000};

std::string where_of(const RemoteReport::NotUploaded& reason) {
  return reason.server.empty() ? std::string() : reason.server + ": ";
}

}  // namespace

Uploads upload(Context& context, const std::vector<ObjectName>& names, bool is_purpose,
               bool again) {
  Uploads uploads;
  const RemoteSettings& settings = context.settings().remote;
  if (!writes_remote(settings)) {
    return uploads;
  }
  if (RemoteTier* const remote = context.remote()) {
    for (const ObjectName& name : names) {
      uploads.already_there += remote->push(name, again) ? 0 : 1;
    }
    remote->finish(is_purpose ? kRetryLimit : kHostLimit, /*extends=*/true);
    RemoteReport report = remote->report();
    uploads.acknowledged = report.stored;
    uploads.lost = report.dropped;
    uploads.reasons = std::move(report.not_uploaded);
  } else if (uploads.lost = names.size(); uploads.lost != 0) {
    uploads.reasons.push_back({{},
                               "unusable",
                               context.remote_problem(),
                               "correct the setting, then run 'cukiln push'",
                               uploads.lost});
  }
  for (const RemoteReport::NotUploaded& reason : uploads.reasons) {
    if (!reason.is_loss) {
      uploads.kept += reason.objects;
      continue;
    }
    context.messages().log(is_purpose ? LogLevel::error : LogLevel::warn,
                           fmt::format("{}{} not acknowledged: {} ({}); {}",
                                       counted(reason.objects, "upload", "uploads"),
                                       (reason.server.empty() ? "" : " to " + reason.server) +
                                           (reason.objects == 1 ? " was" : " were"),
                                       reason.detail, reason.reason, reason.advice));
  }
  return uploads;
}

std::string upload_line(const Uploads& uploads) {
  std::string text;
  const auto add = [&](std::uint64_t count, const char* what) {
    text +=
        count == 0 ? std::string() : fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(uploads.acknowledged, "acknowledged");
  add(uploads.lost, "lost");
  const char* before = ": ";
  for (const RemoteReport::NotUploaded& reason : uploads.reasons) {
    if (reason.is_loss) {
      text += before + where_of(reason) + reason.detail + " (" + reason.reason + ")";
      before = "; ";
    }
  }
  return text.empty() ? text : "uploads: " + text + "\n";
}

Json json_of(const Uploads& uploads) {
  Json reasons = Json::array();
  for (const RemoteReport::NotUploaded& reason : uploads.reasons) {
    reasons.push_back({{"server", reason.server},
                       {"reason", reason.reason},
                       {"detail", reason.detail},
                       {"advice", reason.advice},
                       {"objects", reason.objects}});
  }
  return Json{{"acknowledged", uploads.acknowledged},
              {"lost", uploads.lost},
              {"kept", uploads.kept},
              {"reasons", std::move(reasons)}};
}

}  // namespace cukiln::cli
