// SPDX-License-Identifier: Apache-2.0
#include "cli/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <utility>

#include "cli/text.hpp"
#include "core/base/result.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/loader_services.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln::cli {

namespace {

constexpr int kJsonIndent = 2;
constexpr std::chrono::milliseconds kUploadTimeout{5'000};

LogLevel level_of(const GlobalOptions& options, const Settings& settings) {
  return options.quiet ? LogLevel::error : settings.log_level;
}

}  // namespace

Context::Context(const GlobalOptions& options, ColorMode color, Settings settings)
    : json_(options.json),
      quiet_(options.quiet),
      settings_(std::move(settings)),
      out_(STDOUT_FILENO, color),
      messages_(Terminal(STDERR_FILENO, color), level_of(options, settings_)) {
  if (!options.store.empty()) {
    std::error_code unknown;  // the working folder may have been removed
    const auto absolute = std::filesystem::absolute(options.store, unknown);
    settings_.store.directory = unknown ? options.store : absolute.lexically_normal().string();
    for (Setting& setting : settings_.all) {
      if (setting.name == "store") {
        setting.value = settings_.store.directory;
        setting.origin = "flag --store";
      }
    }
  }
  settings_.loader.log = messages_.sink();
  settings_.store.log = [this](LogLevel level, std::string_view text) {
    if (hold_store_warnings_ && level == LogLevel::warn) {
      held_warnings_.emplace_back(text);
    } else {
      messages_.log(level, text);
    }
  };
}

Context::~Context() = default;

void Context::print(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void Context::note(std::string_view text) {
  if (!quiet_ && !json_) {
    messages_.print(printable_lines(text) + "\n");
  }
}

void Context::print_json(const Json& document) const {
  print(document.dump(kJsonIndent, ' ', false, Json::error_handler_t::replace) + "\n");
}

Exit Context::fail(Exit exit, const Error& error) {
  messages_.log(LogLevel::error, error.message());
  if (!error.log().empty()) {
    const std::string log = printable_lines(error.log());
    messages_.print(log.back() == '\n' ? log : log + "\n");
  }
  if (json_) {
    print_json(Json{{"error", json_of(error)}});
  }
  return exit;
}

Result<Store*> Context::store() {
  if (!store_) {
    auto opened = Store::open(settings_.store);
    if (!opened && opened.error().code() == ErrorCode::invalid_argument) {
      return std::move(opened).error().with_context(origin_of("store"));
    }
    CUKILN_TRY(store_, std::move(opened));
  }
  return &*store_;
}

std::string Context::origin_of(std::string_view name) const {
  const auto at = std::find_if(settings_.all.begin(), settings_.all.end(),
                               [&](const Setting& setting) { return setting.name == name; });
  return at == settings_.all.end() ? std::string(name) : at->origin;
}

Result<Store*> Context::disk_store() {
  // The error that follows repeats the store's warning: print it only if there is no error.
  hold_store_warnings_ = true;
  auto opened = store();
  hold_store_warnings_ = false;
  CUKILN_TRY(Store * store, std::move(opened));
  if (settings_.store.memory_only) {
    return make_error(
        ErrorCode::invalid_argument,
        "the store is disabled (disable_store is 1, see 'cukiln config'), and this command needs "
        "it; unset CUKILN_DISABLE_STORE");
  }
  if (!store->bypass_reason().empty()) {
    return Error(ErrorCode::io, store->bypass_reason());
  }
  // The entries are gone: the warning says why.
  if (StoreAdmin(*store).was_rebuilt()) {
    for (const std::string& warning : std::exchange(held_warnings_, {})) {
      messages_.warn(warning);
    }
  }
  return store;
}

Result<KernelLoader*> Context::loader(bool inspects) {
  if (!loader_) {
    inspects_ = inspects;
    CUKILN_TRY(Store * opened, store());
    if (!inspects) {
      StoreAdmin admin(*opened);
      remove_revoked_entries(admin);
    }
    CUKILN_TRY(loader_, KernelLoader::create(*opened, settings_.loader));
    LoaderServices(*loader_).set_remote(remote());
  }
  return &*loader_;
}

void Context::remove_revoked_entries(StoreAdmin& store) {
  const auto removed = store.remove_revoked();
  if (!removed) {
    messages_.warn("cannot remove the entries that a revoked key signed: " +
                   removed.error().message());
  } else if (*removed != 0) {
    messages_.warn(
        fmt::format("{} removed: signed by a key that was revoked",
                    *removed == 1 ? "1 entry was" : fmt::format("{} entries were", *removed)));
  }
}

RemoteTier* Context::remote() {
  if (!std::exchange(remote_opened_, true)) {
    auto opened = open_remote(settings_.remote, Logger(messages_.sink()));
    if (opened) {
      remote_ = *std::move(opened);
      if (auto here = remote_ != nullptr ? store() : Result<Store*>(nullptr); here && *here) {
        remote_->use_store(StoreAdmin(**here), /*keeps_trying=*/false);
      }
    } else {
      remote_problem_ = opened.error().message();
      messages_.warn("no remote store is used: " + remote_problem_);
    }
  }
  return remote_.get();
}

void Context::finish_uploads() {
  if (remote_ == nullptr || inspects_) {
    return;
  }
  if (!remote_->finish(kUploadTimeout)) {
    messages_.warn(
        fmt::format("some uploads to the remote store were dropped: not done within {} s",
                    kUploadTimeout.count() / 1000));
  }
  const RemoteReport stats = remote_->report();
  std::uint64_t failed = 0, rejected = 0;
  for (const auto& [result, count] : stats.requests) {
    failed += result == "ok" || result == "absent" ? 0 : count;
  }
  for (const auto& [reason, count] : stats.rejected) {
    rejected += count;
  }
  for (const auto& [name, value] :
       {std::pair("remote_hits", stats.hits), std::pair("remote_misses", stats.misses),
        std::pair("remote_stored", stats.stored), std::pair("remote_dropped", stats.dropped),
        std::pair("remote_waits", stats.waits), std::pair("remote_errors", failed),
        std::pair("remote_rejected", rejected)}) {
    if (value != 0 && store_) {
      StoreAdmin(*store_).count(name, static_cast<std::int64_t>(value));
    }
  }
  for (const RemoteReport::NotUploaded& one : stats.not_uploaded) {
    if (one.is_loss && store_) {
      StoreAdmin(*store_).count("remote_dropped_" + one.reason,
                                static_cast<std::int64_t>(one.objects));
    }
  }
}

Exit exit_of(const Error& error) noexcept {
  switch (error.code()) {
    case ErrorCode::invalid_argument: return Exit::usage;
    case ErrorCode::not_found:
    case ErrorCode::driver: return Exit::environment;
    default: return Exit::failed;
  }
}

Json json_of(const Error& error) {
  Json json{{"code", name_of(error.code())}, {"message", error.message()}};
  if (!error.log().empty()) {
    json["log"] = error.log();
  }
  return json;
}

}  // namespace cukiln::cli
