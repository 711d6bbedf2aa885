// SPDX-License-Identifier: Apache-2.0
#include "daemon/main/live_settings.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/result.hpp"
#include "store/revocation.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::chrono::milliseconds kUploadPatience{5'000};
constexpr std::string_view kRemote = "remote";  // and all that begins so
// Of processes, and not of a daemon.
constexpr std::string_view kOfOthers[] = {"daemon", "record", "offline", "cuda_library"};

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
      "remote_sign is set, from {}: with --system any user of this machine would have a kernel "
      "of their choice signed for the fleet. Take it out of these settings, and sign with a "
      "cukilnd of one user, or with cukiln export --sign",
      from->origin);
}

void finish_uploads(RemoteStore* remote, const Logger& log) {
  if (remote != nullptr && !remote->finish(kUploadPatience)) {
    log.warn("some uploads to the remote store were given up: it takes too long");
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
    log_.warn("the remote store is not used: {}", opened.error().message());
  }
  const auto before = targets_.remote.exchange(fresh);
  if (const RevokedKeys revoked(now_.store.revoked_keys); revoked.any()) {
    std::uint64_t removed = 0;
    targets_.stores.for_each([&](TieredStore& store) {
      const auto gone = remove_revoked(store, revoked);
      removed += gone ? *gone : 0;
    });
    if (removed != 0) {
      log_.warn("{} entries removed: signed by a key that was revoked", removed);
    }
  }
  finish_uploads(before.get(), log_);
}

void LiveSettings::take(const Settings& fresh) {
  for (std::size_t i = 0; i < fresh.all.size(); ++i) {
    const std::string& name = fresh.all[i].name;
    if (fresh.all[i].value == now_.all[i].value ||
        std::find(std::begin(kOfOthers), std::end(kOfOthers), name) != std::end(kOfOthers)) {
      continue;
    }
    if (is_live(name)) {  // no values: a remote's has a password
      log_.info("{} has changed, from {}", name, fresh.all[i].origin);
    } else {
      log_.warn("{} has changed in {} and is not taken: restart cukilnd for it", name,
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
    log_.error("the settings were read again and are not taken, because of a mistake: {}",
               fresh ? fresh->warnings.front() : fresh.error().message());
    return;
  }
  if (const auto refused = targets_.system ? refused_for_system(*fresh) : std::nullopt) {
    log_.error("the settings were read again and are not taken: {}", *refused);
    return;
  }
  take(*fresh);
  now_ = *std::move(fresh);
  open_remote();  // the keys may be others though their file is the same
  log_.info("the settings were read again");
}

}  // namespace cukiln::daemon
