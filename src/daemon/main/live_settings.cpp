// SPDX-License-Identifier: Apache-2.0
#include "daemon/main/live_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/result.hpp"
#include "store/revocation.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::milliseconds kUploadTimeout{5'000};
constexpr std::string_view kRemote = "remote";  // prefix
// Settings that a daemon does not use.
constexpr std::string_view kNotOfDaemons[] = {"daemon", "record", "offline", "cuda_library"};

bool is_live(std::string_view name) {
  return name == "max_size" || name == "log" || name.substr(0, kRemote.size()) == kRemote;
}

}  // namespace

std::optional<std::string> refused_for_system(const Settings& settings) {
  if (settings.remote.sign.empty()) {
    return std::nullopt;
  }
  const auto from = std::find_if(settings.all.begin(), settings.all.end(),
                                 [](const auto& one) { return one.name == "remote_sign"; });
  return fmt::format(
      "remote_sign is set in {}, but --system refuses it: any user of this machine could have "
      "a kernel signed for the fleet. Remove it from these settings, give the key to a signer "
      "(cukilnd --signer, see OPERATIONS.md) and set signer_socket",
      from->origin);
}

void finish_uploads(RemoteStore* remote, const Logger& log) {
  if (remote != nullptr && !remote->finish(kUploadTimeout)) {
    log.warn("dropped uploads to the remote store after {} s", kUploadTimeout.count() / 1000);
  }
}

LiveSettings::LiveSettings(SettingsSources sources, Settings now, Targets targets, Logger log)
    : sources_(std::move(sources)), now_(std::move(now)), targets_(targets), log_(std::move(log)) {}

void LiveSettings::open_remote() {
  const RemoteSettings& remote = now_.remote;
  std::shared_ptr<RemoteStore> fresh;
  if (auto opened =
          RemoteStore::open(remote.stores, remote.trust, remote.sign, remote.timeout, log_)) {
    fresh = *std::move(opened);
  } else {
    log_.warn("the remote store cannot be used: {}", opened.error().message());
  }
  const auto before = targets_.remote.exchange(fresh);
  if (const RevokedKeys revoked(now_.store.revoked_keys); revoked.any()) {
    std::uint64_t removed = 0;
    targets_.stores.for_each([&](TieredStore& store) {
      const auto gone = remove_revoked(store, revoked);
      removed += gone ? *gone : 0;
    });
    if (removed != 0) {
      log_.warn("removed {} entries that a revoked key has signed", removed);
    }
  }
  finish_uploads(before.get(), log_);
}

void LiveSettings::apply(const Settings& fresh) {
  for (std::size_t i = 0; i < fresh.all.size(); ++i) {
    const std::string& name = fresh.all[i].name;
    if (fresh.all[i].value == now_.all[i].value ||
        std::find(std::begin(kNotOfDaemons), std::end(kNotOfDaemons), name) !=
            std::end(kNotOfDaemons)) {
      continue;
    }
    if (targets_.audit != nullptr) {
      targets_.audit->record({"setting",
                              ::geteuid(),
                              ::getpid(),
                              {{"name", name}, {"origin", fresh.all[i].origin}},
                              {}});
    }
    if (is_live(name)) {  // values are not logged: a remote's may have a password
      log_.info("reload: {} has changed in {}", name, fresh.all[i].origin);
    } else {
      log_.warn("reload: {} has changed in {} and needs a restart of cukilnd", name,
                fresh.all[i].origin);
    }
  }
  if (!targets_.verbose) {
    targets_.log_level.store(fresh.log_level, std::memory_order_relaxed);
  }
  targets_.stores.set_max_bytes(fresh.store.max_bytes);
}

void LiveSettings::reload() {
  auto fresh = load_settings(sources_);
  if (!fresh || !fresh->warnings.empty()) {
    log_.error("reload: the settings are invalid, nothing has changed: {}",
               fresh ? fresh->warnings.front() : fresh.error().message());
    return;
  }
  if (const auto refused = targets_.system ? refused_for_system(*fresh) : std::nullopt) {
    log_.error("reload: the settings are refused, nothing has changed: {}", *refused);
    return;
  }
  apply(*fresh);
  now_ = *std::move(fresh);
  open_remote();  // always: key files may have changed though the settings have not
  if (targets_.audit != nullptr) {
    targets_.audit->record({"reloaded", ::geteuid(), ::getpid(), {}, {}});
  }
  log_.info("reload: done");
}

}  // namespace cukiln::daemon
