// SPDX-License-Identifier: Apache-2.0
#include "core/loader/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>

#include "core/base/file.hpp"
#include "core/base/nearest.hpp"
#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/config_text.hpp"
#include "core/store/signers.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kLevels[] = {"error", "warn", "info", "debug"};

constexpr std::size_t kMaxFileBytes = 1 << 20;

constexpr std::string_view kAuto = "auto";

constexpr std::string_view kDaemonUses[] = {"auto", "off", "require"};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(separator), text.size());
    if (at != 0) {
      parts.emplace_back(text.substr(0, at));
    }
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

Result<bool> parse_bool(std::string_view text) {
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"", "0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return make_error(ErrorCode::invalid_argument, "expected 1 or 0, found \"{}\"", text);
}

/// `auto` is 0: what the machine has.
Result<unsigned> parse_jobs(std::string_view text) {
  constexpr unsigned kMaxJobs = 1024;
  unsigned jobs = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  if (text != kAuto && (!is_number || jobs == 0 || jobs > kMaxJobs)) {
    return make_error(ErrorCode::invalid_argument,
                      "expected auto or a number from 1 to {}, found \"{}\"", kMaxJobs, text);
  }
  return is_number ? jobs : 0;
}

/// `auto` is 0: what the machine has.
Result<std::uint64_t> parse_memory(std::string_view text) {
  if (text == kAuto) {
    return std::uint64_t{0};
  }
  CUKILN_TRY(const std::uint64_t bytes, parse_bytes(text));
  if (bytes == 0) {
    return make_error(ErrorCode::invalid_argument, "expected auto or a size such as 4GiB, found 0");
  }
  return bytes;
}

std::string number_or_auto(std::uint64_t number) {
  return number == 0 ? std::string(kAuto) : std::to_string(number);
}

Result<void> parse_level(std::string_view text, LogLevel& out) {
  const auto* const at = std::find(std::begin(kLevels), std::end(kLevels), text);
  if (at == std::end(kLevels)) {
    return make_error(ErrorCode::invalid_argument,
                      "expected error, warn, info or debug, found \"{}\"", text);
  }
  out = static_cast<LogLevel>(at - std::begin(kLevels));
  return {};
}

std::string joined(const std::vector<std::string>& parts, char separator) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : std::string(1, separator)) + part;
  }
  return text;
}

// How a setting is read from a text, and shown: one struct for each kind.

struct Text {
  static constexpr char kSeparator = ':';  // joins the elements if a file has a list
  static Result<void> read(const std::string& text, std::string& out) {
    out = text;
    return {};
  }
  static std::string show(const std::string& value) { return value; }
};

struct Commas : Text {
  static constexpr char kSeparator = ',';
};

struct List : Text {
  static Result<void> read(const std::string& text, std::vector<std::string>& out) {
    out = split(text, kSeparator);
    return {};
  }
  static std::string show(const std::vector<std::string>& value) {
    return joined(value, kSeparator);
  }
};

struct Flag : Text {
  static Result<void> read(const std::string& text, bool& out) {
    CUKILN_TRY(out, parse_bool(text));
    return {};
  }
  static std::string show(bool value) { return value ? "1" : "0"; }
};

struct Bytes : Text {
  static Result<void> read(const std::string& text, std::uint64_t& out) {
    CUKILN_TRY(out, parse_bytes(text));
    return {};
  }
  static std::string show(std::uint64_t value) { return std::to_string(value); }
};

struct Jobs : Text {
  static Result<void> read(const std::string& text, unsigned& out) {
    CUKILN_TRY(out, parse_jobs(text));
    return {};
  }
  static std::string show(unsigned value) { return number_or_auto(value); }
};

struct Memory : Text {
  static Result<void> read(const std::string& text, std::uint64_t& out) {
    CUKILN_TRY(out, parse_memory(text));
    return {};
  }
  static std::string show(std::uint64_t value) { return number_or_auto(value); }
};

struct Timeout : Text {
  static Result<void> read(const std::string& text, std::chrono::milliseconds& out) {
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const bool valid = error == std::errc{} && end == text.data() + text.size() && count != 0;
    out = valid ? std::chrono::milliseconds(count) : RemoteSettings().timeout;
    if (!valid) {
      return make_error(ErrorCode::invalid_argument, "expected milliseconds, found \"{}\"", text);
    }
    return {};
  }
  static std::string show(std::chrono::milliseconds value) { return std::to_string(value.count()); }
};

struct Daemon : Text {
  static Result<void> read(const std::string& text, DaemonUse& out) {
    const auto* const at = std::find(std::begin(kDaemonUses), std::end(kDaemonUses), text);
    if (at == std::end(kDaemonUses)) {
      return make_error(ErrorCode::invalid_argument, "expected auto, off or require, found \"{}\"",
                        text);
    }
    out = static_cast<DaemonUse>(at - std::begin(kDaemonUses));
    return {};
  }
  static std::string show(DaemonUse value) {
    return std::string(kDaemonUses[static_cast<std::size_t>(value)]);
  }
};

struct Level : Text {
  static Result<void> read(const std::string& text, LogLevel& out) {
    return parse_level(text, out);
  }
  static std::string show(LogLevel value) {
    return std::string(kLevels[static_cast<std::size_t>(value)]);
  }
};

/// One setting: its name in config.toml (in the environment in upper case after CUKILN_), a
/// function that sets it from a text, and one that formats its value.
struct Key {
  const char* name;
  Result<void> (*set)(Settings&, const std::string&);
  std::string (*get)(const Settings&);
  char separator;
};

/// A setting that is the member which `Member` returns.
template <class Kind, class Member>
constexpr Key key(const char* name, Member /*member*/) {
  return {name, [](Settings& s, const std::string& text) { return Kind::read(text, Member{}(s)); },
          [](const Settings& s) { return Kind::show(Member{}(s)); }, Kind::kSeparator};
}

const Key kKeys[] = {
    // schema: settings. Written by src/schema/generate.py
    // clang-format off
    key<Text>("store", [](auto& s) -> auto& { return s.store.directory; }),
    key<Text>("system_store", [](auto& s) -> auto& { return s.store.system_directory; }),
    key<Bytes>("max_size", [](auto& s) -> auto& { return s.store.max_bytes; }),
    key<Flag>("disable_store", [](auto& s) -> auto& { return s.store.memory_only; }),
    key<Daemon>("daemon", [](auto& s) -> auto& { return s.store.daemon; }),
    key<Text>("daemon_socket", [](auto& s) -> auto& { return s.store.daemon_socket; }),
    key<Text>("nvrtc_library", [](auto& s) -> auto& { return s.loader.nvrtc_library; }),
    key<Text>("cuda_library", [](auto& s) -> auto& { return s.loader.cuda_library; }),
    key<Text>("worker", [](auto& s) -> auto& { return s.loader.worker; }),
    key<List>("include_path", [](auto& s) -> auto& { return s.loader.include_path; }),
    key<Flag>("offline", [](auto& s) -> auto& { return s.loader.offline; }),
    key<Jobs>("jobs", [](auto& s) -> auto& { return s.loader.jobs; }),
    key<Memory>("memory", [](auto& s) -> auto& { return s.loader.memory_bytes; }),
    key<Text>("record", [](auto& s) -> auto& { return s.loader.record; }),
    key<Commas>("remote", [](auto& s) -> auto& { return s.remote.stores; }),
    key<Commas>("remote_trust", [](auto& s) -> auto& { return s.remote.trust; }),
    key<Commas>("remote_sign", [](auto& s) -> auto& { return s.remote.sign; }),
    key<Timeout>("remote_timeout_ms", [](auto& s) -> auto& { return s.remote.timeout; }),
    key<Level>("log", [](auto& s) -> auto& { return s.log_level; }),
    // clang-format on
    // end of schema
};

// schema: variables. Written by src/schema/generate.py
// clang-format off
constexpr std::string_view kOtherVariables[] = {"library", "nvjitlink_library", "run_report", "vllm"};
// clang-format on
// end of schema
constexpr std::string_view kTests = "test_";

/// A setting of 0.2 that has no effect.
struct DeletedKey {
  std::string_view name, why;
};
constexpr DeletedKey kDeletedKeys[] = {
    {"daemon_watch", "cukilnd compiles what is requested, and watches no sources"},
    {"signer_socket", "cukilnd serves one user and starts its own workers"},
    {"worker_socket", "cukilnd serves one user and starts its own workers"},
};

/// Null if a setting of this name was never deleted.
const DeletedKey* deleted_key(std::string_view name) {
  const auto* const at = std::find_if(std::begin(kDeletedKeys), std::end(kDeletedKeys),
                                      [&](const DeletedKey& key) { return key.name == name; });
  return at != std::end(kDeletedKeys) ? at : nullptr;
}

/// The warning about a deleted setting, by its name in a file or in the environment.
std::string no_effect(std::string_view name, const DeletedKey& deleted) {
  return fmt::format("{} has no effect since 0.4, because {}; remove it", name, deleted.why);
}

/// Returns the setting whose name is nearest to `name`; empty if none is near.
std::string nearest_key(const std::string& name) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    names.emplace_back(key.name);
  }
  return nearest(name, names);
}

bool is_read(std::string_view name) {
  return name.substr(0, kTests.size()) == kTests ||
         std::find(std::begin(kOtherVariables), std::end(kOtherVariables), name) !=
             std::end(kOtherVariables) ||
         std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const Key& key) { return name == key.name; });
}

std::string environment_name(std::string_view name) {
  std::string text(kVariablePrefix);
  for (const char c : name) {
    text += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}

class Resolver {
 public:
  explicit Resolver(const SettingsSources& sources) : sources_(sources) {}

  Settings run() {
    set_defaults();
    read_file_if_there(sources_.system_file);
    if (sources_.secure_process) {
      settings_.store.memory_only = true;
      settings_.warnings.emplace_back(
          "a set-user-id process: the environment and the user's configuration are ignored, and "
          "nothing is stored on disk");
    } else {
      read_file_if_there(
          join_path(user_folder(sources_, "XDG_CONFIG_HOME", ".config"), "config.toml"));
      read_environment();
    }
    find_distrusted_keys();
    warn_of_unused_remote();
    for (std::size_t i = 0; i < std::size(kKeys); ++i) {
      settings_.all.push_back({kKeys[i].name, kKeys[i].get(settings_), origins_[i]});
    }
    return std::move(settings_);
  }

 private:
  std::optional<std::string> environment(const char* name) const {
    return value_of(sources_, name);
  }

  void set_defaults() {
    origins_.assign(std::size(kKeys), "default");
    if (!sources_.secure_process) {
      settings_.store.directory = default_store_directory(sources_);
      CudaPlaces& places = settings_.loader.cuda_places;
      places.virtual_env = environment("VIRTUAL_ENV").value_or("");
      places.conda_prefix = environment("CONDA_PREFIX").value_or("");
      places.cuda_home = environment("CUDA_HOME").value_or(environment("CUDA_PATH").value_or(""));
      places.home = environment("HOME").value_or("");
      places.library_path = split(environment("LD_LIBRARY_PATH").value_or(""), ':');
      settings_.loader.nvtx_library = environment("NVTX_INJECTION64_PATH").value_or("");
    }
  }

  void set(std::size_t index, const std::string& text, const std::string& origin) {
    if (auto ok = kKeys[index].set(settings_, text); !ok) {
      settings_.warnings.push_back(
          fmt::format("{} in {} is ignored: {}", kKeys[index].name, origin, ok.error().message()));
      return;
    }
    origins_[index] = origin;
  }

  void read_file_if_there(const std::string& path) {
    const bool absent = ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
    settings_.files.insert(settings_.files.begin(), {path, !absent});
    if (absent) {
      return;  // the usual case: no error message is formatted at every start
    }
    const auto content = read_trusted_file(path, "the configuration file", kMaxFileBytes);
    if (!content) {
      if (content.error().code() != ErrorCode::not_found) {
        settings_.warnings.push_back(path + " is ignored: " + content.error().message());
      }
      return;
    }
    const auto config = parse_config(*content, path);
    if (!config) {
      settings_.warnings.push_back(path + " is ignored: " + config.error().message());
      return;
    }
    for (const auto& [name, values] : *config) {
      const auto* const at = std::find_if(
          std::begin(kKeys), std::end(kKeys),
          [&, key_name = std::string_view(name)](const Key& k) { return key_name == k.name; });
      if (const DeletedKey* const deleted = deleted_key(name)) {
        settings_.warnings.push_back(fmt::format("{}: {}", path, no_effect(name, *deleted)));
        continue;
      }
      if (at == std::end(kKeys)) {
        const std::string meant = nearest_key(name);
        settings_.warnings.push_back(
            fmt::format("{}: unknown key \"{}\"{}", path, name,
                        meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant)));
        continue;
      }
      set(static_cast<std::size_t>(at - std::begin(kKeys)), joined(values, at->separator), path);
    }
  }

  void read_environment() {
    for (std::size_t i = 0; i < std::size(kKeys); ++i) {
      const std::string name = environment_name(kKeys[i].name);
      if (const auto value = environment(name.c_str())) {
        set(i, *value, "environment " + name);
      }
    }
    for (const std::string& variable :
         sources_.variables ? sources_.variables() : std::vector<std::string>()) {
      suggest(variable);
    }
  }

  /// Warns of a variable that nothing reads.
  void suggest(const std::string& variable) {
    std::string name = variable.substr(std::min(kVariablePrefix.size(), variable.size()));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (const DeletedKey* const deleted = deleted_key(name)) {
      settings_.warnings.push_back(no_effect(variable, *deleted));
      return;
    }
    if (is_read(name)) {
      return;
    }
    const std::string meant = nearest_key(name);
    settings_.warnings.push_back(
        fmt::format("{} is not a setting; {}", variable,
                    meant.empty() ? std::string("'cukiln config' lists them")
                                  : fmt::format("did you mean {}?", environment_name(meant))));
  }

  /// Hosts do not verify signatures; they compare the texts of keys with an entry's signers.
  void find_distrusted_keys() {
    auto revoked = read_revoked_keys(settings_.remote.trust);
    if (revoked) {
      settings_.store.revoked_keys = *std::move(revoked);
    } else {
      settings_.warnings.push_back("the keys that remote_trust revokes cannot be read: " +
                                   revoked.error().message());
      return;
    }
    auto scoped = read_scoped_keys(settings_.remote.trust);
    if (scoped) {
      settings_.store.scoped_keys = *std::move(scoped);
    } else {
      settings_.warnings.push_back("the scopes of the keys in remote_trust cannot be read: " +
                                   scoped.error().message());
    }
  }

  /// Only programs with the add-on fetch: a host does by way of a daemon. Once in a process.
  void warn_of_unused_remote() {
    const RemoteSettings& remote = settings_.remote;
    if (remote.stores.empty() && !remote.sign.empty()) {
      settings_.warnings.emplace_back("remote_sign has no effect without remote");
    }
    const auto sockets = daemon_sockets(sources_, settings_.store);
    if (!remote.stores.empty() && addons().open_remote == nullptr && sources_.variables &&
        std::none_of(sockets.begin(), sockets.end(),
                     [](const std::string& one) { return ::access(one.c_str(), F_OK) == 0; })) {
      settings_.warnings.emplace_back(
          "remote is used only by cukilnd and the command line, and no cukilnd runs here: start "
          "it, or run 'cukiln preload --no-load' with this store before");
    }
  }

  const SettingsSources& sources_;
  Settings settings_;
  std::vector<std::string> origins_;
};

}  // namespace

Result<Settings> load_settings(const SettingsSources& sources) { return Resolver(sources).run(); }

Result<Settings> Settings::load() {
  return guarded([] {
    static std::atomic<bool> has_warned{false};
    SettingsSources sources = SettingsSources::of_this_process();
    if (has_warned.exchange(true)) {
      sources.variables = nullptr;
    }
    return load_settings(sources);
  });
}

}  // namespace cukiln
