#include "cli/context.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/result.hpp"
#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr int kJsonIndent = 2;

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
    settings_.store.directory =
        std::filesystem::absolute(options.store).lexically_normal().string();
    for (Setting& setting : settings_.all) {
      if (setting.name == "store") {
        setting.value = settings_.store.directory;
        setting.origin = "flag --store";
      }
    }
  }
  settings_.loader.log = messages_.sink();
  settings_.store.log = [this](LogLevel level, std::string_view text) {
    if (!hold_store_warnings_ || level != LogLevel::warn) {
      messages_.say(level, text);
    }
  };
}

void Context::print(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void Context::print_json(const Json& document) const {
  print(document.dump(kJsonIndent, ' ', false, Json::error_handler_t::replace) + "\n");
}

Exit Context::fail(Exit exit, const Error& error) {
  messages_.say(LogLevel::error, error.message());
  if (!error.log().empty()) {
    const std::string log = printable_lines(error.log());
    messages_.show(log.back() == '\n' ? log : log + "\n");
  }
  if (json_) {
    print_json(Json{{"error", json_of(error)}});
  }
  return exit;
}

Result<Store*> Context::store() {
  if (!store_) {
    CUKILN_TRY(store_, open_store(settings_.store));
  }
  return store_.get();
}

Result<Store*> Context::disk_store() {
  // Without a disk tier the error says the same, and says it once.
  hold_store_warnings_ = true;
  auto opened = store();
  hold_store_warnings_ = false;
  CUKILN_TRY(Store * store, std::move(opened));
  if (settings_.store.memory_only) {
    return make_error(
        ErrorCode::invalid_argument,
        "the store is disabled (disable_store is 1, see 'cukiln config'), and this is "
        "about what is on disk; unset CUKILN_DISABLE_STORE");
  }
  if (!store->bypass_reason().empty()) {
    return Error(ErrorCode::io, store->bypass_reason());
  }
  return store;
}

Result<KernelLoader*> Context::loader() {
  if (!loader_) {
    CUKILN_TRY(Store * opened, store());
    CUKILN_TRY(loader_, KernelLoader::create(*opened, settings_.loader));
  }
  return loader_.get();
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
