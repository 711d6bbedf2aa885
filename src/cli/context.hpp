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
class RemoteTier;
class StoreAdmin;
}  // namespace cukiln

namespace cukiln::cli {

/// JSON whose objects keep the order in which fields were added.
using Json = nlohmann::ordered_json;

enum class Exit : int {
  done = 0,
  failed = 1,       ///< the work failed: a kernel does not compile, a check found damage
  usage = 2,        ///< the command line is wrong: an unknown flag or target, a missing source
  environment = 3,  ///< the machine lacks something: NVRTC, the driver, a permission
  store = 4,        ///< the store cannot be used
};

/// The options of every command.
struct GlobalOptions {
  std::string store;
  std::string color = "auto";
  bool json = false;
  bool quiet = false;
  bool help = false;
  bool version = false;
};

/// What a command runs with: the settings, stdout and stderr, the store, the loader and the remote
/// stores. Opens the last three when a command first asks for them. For the main thread;
/// `messages()` is safe from any.
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
  const Settings& settings() const noexcept { return settings_; }

  /// Prints text on stdout.
  void print(std::string_view text) const;
  /// Prints on stderr what was done, unless --quiet or --json is set: scripts read stdout.
  void note(std::string_view text);
  std::string paint(Color color, std::string_view text) const { return out_.paint(color, text); }
  /// Prints the document of `--json`. Replaces bytes that are not UTF-8.
  void print_json(const Json& document) const;

  /// Prints an error and its log on stderr, with --json also as the document. Returns `exit`.
  Exit fail(Exit exit, const Error& error);
  template <class... Args>
  Exit usage(fmt::format_string<Args...> format, Args&&... args) {
    return fail(Exit::usage, Error(ErrorCode::invalid_argument,
                                   fmt::format(format, std::forward<Args>(args)...)));
  }

  /// Returns the store. Without a usable disk it works in memory, and a warning says so. Errors:
  /// those of `Store::open`.
  Result<Store*> store();
  /// Returns the store, if it is on disk. Errors: why it is not, and what to do.
  Result<Store*> disk_store();
  /// Removes the entries that a revoked key signed, and prints how many.
  void remove_revoked_entries(StoreAdmin& store);
  /// Returns a loader on `store()`, with the options that the settings had at the first call.
  /// `inspects`: for a command that says what is there. Entries that a revoked key signed stay, and
  /// what it asks of a remote store is not counted. Errors: those of `store()` and
  /// `KernelLoader::create`.
  Result<KernelLoader*> loader(bool inspects = false);
  /// Returns the remote stores. Null if none is configured, or if the configuration is unusable,
  /// of which the first call warns.
  RemoteTier* remote();
  /// Why the configured remote stores cannot be used; empty if they can.
  const std::string& remote_problem() const noexcept { return remote_problem_; }

  /// Waits some seconds for uploads to remote stores, and flushes their counters. Commands that
  /// report their uploads have waited before, see `upload`.
  void finish_uploads();

 private:
  /// Returns the origin of a setting: `environment CUKILN_STORE`.
  std::string origin_of(std::string_view name) const;

  const bool json_;
  const bool quiet_;
  Settings settings_;
  const Terminal out_;
  Messages messages_;
  bool hold_store_warnings_ = false;
  std::vector<std::string> held_warnings_;
  std::optional<Store> store_;
  bool inspects_ = false;
  bool remote_opened_ = false;
  std::string remote_problem_;
  std::unique_ptr<RemoteTier> remote_;  // outlives the loader that uses it
  std::optional<KernelLoader> loader_;
};

/// Returns the exit code of an error that ends a command.
Exit exit_of(const Error& error) noexcept;

Json json_of(const Error& error);

}  // namespace cukiln::cli
