// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/main/live_settings.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "core/base/result.hpp"
#include "core/loader/addons.hpp"
#include "core/store/store_admin.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::milliseconds kUploadTimeout{5'000};
// Settings that a daemon takes on SIGHUP, and those that it does not use.
// schema: reload. Written by src/schema/generate.py
// clang-format off
constexpr std::string_view kLive[] = {"max_size", "remote", "remote_trust", "remote_sign", "remote_timeout_ms", "log"};
constexpr std::string_view kNotOfDaemons[] = {"daemon", "cuda_library", "offline", "record"};
// clang-format on
// end of schema

bool is_in(const auto& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

void finish_uploads(RemoteTier* remote, const Logger& log) {
  if (remote != nullptr && !remote->finish(kUploadTimeout)) {
    log.warn("dropped uploads to the remote store after {} s", kUploadTimeout.count() / 1000);
  }
}

LiveSettings::LiveSettings(SettingsSources sources, Settings now, Targets targets, Logger log)
    : sources_(std::move(sources)), now_(std::move(now)), targets_(targets), log_(std::move(log)) {}

void LiveSettings::open_remote() {
  const RemoteSettings& remote = now_.remote;
  std::shared_ptr<RemoteTier> fresh;
  if (auto opened = cukiln::open_remote(remote, log_)) {
    fresh = *std::move(opened);
    if (fresh != nullptr) {  // before the one in use drops what it could not upload
      fresh->use_store(StoreAdmin(targets_.store), /*keeps_trying=*/true);
    }
  } else {
    log_.warn("the remote store cannot be used: {}", opened.error().message());
  }
  const auto before = targets_.remote.exchange(fresh);
  if (const RevokedKeys revoked(now_.store.revoked_keys); revoked.any()) {
    const auto removed = remove_revoked(targets_.store, revoked);
    if (removed && *removed != 0) {
      log_.warn("removed {} entries that a revoked key has signed", *removed);
    }
  }
  finish_uploads(before.get(), log_);
}

void LiveSettings::apply(const Settings& fresh) {
  for (std::size_t i = 0; i < fresh.all.size(); ++i) {
    const std::string& name = fresh.all[i].name;
    if (fresh.all[i].value == now_.all[i].value || is_in(kNotOfDaemons, name)) {
      continue;
    }
    if (is_in(kLive, name)) {  // values are not logged: a remote's may have a password
      log_.info("reload: {} has changed in {}", name, fresh.all[i].origin);
    } else {
      log_.warn("reload: {} has changed in {} and needs a restart of cukilnd", name,
                fresh.all[i].origin);
    }
  }
  if (!targets_.verbose) {
    targets_.log_level.store(fresh.log_level, std::memory_order_relaxed);
  }
  if (targets_.store.disk() != nullptr) {
    targets_.store.disk()->set_max_bytes(fresh.store.max_bytes);
  }
}

/// The first warning about these settings that there was not about those in use; empty if none.
std::string LiveSettings::new_warning(const Settings& fresh) const {
  const auto is_known = [&](const std::string& warning) {
    return std::find(now_.warnings.begin(), now_.warnings.end(), warning) != now_.warnings.end();
  };
  const auto at = std::find_if_not(fresh.warnings.begin(), fresh.warnings.end(), is_known);
  return at != fresh.warnings.end() ? *at : std::string();
}

void LiveSettings::reload() {
  auto fresh = load_settings(sources_);
  const std::string fault = fresh ? new_warning(*fresh) : fresh.error().message();
  if (!fault.empty()) {
    log_.error("reload: the settings are invalid, nothing has changed: {}", fault);
    return;
  }
  apply(*fresh);
  now_ = *std::move(fresh);
  open_remote();  // always: key files may have changed though the settings have not
  log_.info("reload: done");
}

}  // namespace cukiln::daemon
