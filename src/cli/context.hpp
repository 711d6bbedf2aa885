// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/messages.hpp"
#include "cli/terminal.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/settings.hpp>

namespace cukiln {
class RemoteStore;
class StoreAdmin;
}  // namespace cukiln

namespace cukiln::cli {

/// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

enum class Exit : int {
  done = 0,
  failed = 1,       ///< the work failed: a kernel does not compile, damage was found
  usage = 2,        ///< what was asked for cannot be: a flag, a target, a source that is not there
  environment = 3,  ///< the machine lacks something: NVRTC, the driver, a permission
  store = 4,        ///< the store cannot be used
};

/// The flags that every command takes.
struct GlobalOptions {
  std::string store;
  std::string color = "auto";
  bool json = false;
  bool quiet = false;
  bool help = false;
  bool version = false;
};

/// What a command works with: the settings, the two streams, the store and the loader.
class Context {
 public:
  Context(const GlobalOptions& options, ColorMode color, Settings settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  bool json() const noexcept { return json_; }
  bool quiet() const noexcept { return quiet_; }
  const Terminal& out() const noexcept { return out_; }
  Messages& messages() noexcept { return messages_; }
  Settings& settings() noexcept { return settings_; }

  /// Text on stdout.
  void print(std::string_view text) const;
  /// What was done, on stderr, for stdout is for what a script reads; nothing with --quiet.
  void note(std::string_view text);
  std::string paint(Color ink, std::string_view text) const { return out_.paint(ink, text); }
  /// The one document of `--json`. Bytes that are no UTF-8 are replaced.
  void print_json(const Json& document) const;

  /// Tells an error on stderr (its log too), and as a JSON document where one is expected.
  Exit fail(Exit exit, const Error& error);
  template <class... Args>
  Exit usage(fmt::format_string<Args...> format, Args&&... args) {
    return fail(Exit::usage, Error(ErrorCode::invalid_argument,
                                   fmt::format(format, std::forward<Args>(args)...)));
  }

  /// The store, whatever it is: without a disk it works in memory, and says so on stderr.
  Result<Store*> store();
  /// The store on disk. Errors: why there is none, and what to do.
  Result<Store*> disk_store();
  /// Removes what a key signed that was revoked since, and says so.
  void remove_revoked_entries(StoreAdmin& store);
  /// A loader on `store()`, with the options of the settings as they are at the first call.
  Result<KernelLoader*> loader();
  /// The fleet's stores; null where none is configured, or what is configured cannot be used, which
  /// is said once.
  RemoteStore* remote();

  /// Before the end: uploads arrive, or are given up.
  void finish_uploads();

 private:
  /// Where a setting came from: `environment CUKILN_STORE`.
  std::string origin_of(std::string_view name) const;

  const bool json_;
  const bool quiet_;
  Settings settings_;
  const Terminal out_;
  Messages messages_;
  bool hold_store_warnings_ = false;
  std::vector<std::string> held_warnings_;
  std::optional<Store> store_;
  bool remote_opened_ = false;
  std::unique_ptr<RemoteStore> remote_;  // outlives the loader that asks it
  std::optional<KernelLoader> loader_;
};

/// What an error that ended a whole command says about the machine or the work.
Exit exit_of(const Error& error) noexcept;

Json json_of(const Error& error);

}  // namespace cukiln::cli
