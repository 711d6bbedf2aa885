// SPDX-License-Identifier: Apache-2.0
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/loader/settings.hpp"

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln {

namespace {

/// Returns the home folder for processes without $HOME, such as units of systemd.
std::optional<std::string> home_in_password_database() {
  struct passwd entry {};
  struct passwd* user = nullptr;
  char buffer[4096];
  if (::getpwuid_r(::geteuid(), &entry, buffer, sizeof buffer, &user) != 0 || user == nullptr ||
      user->pw_dir == nullptr || user->pw_dir[0] != '/') {
    return std::nullopt;
  }
  return std::string(user->pw_dir);
}

}  // namespace

std::optional<std::string> value_of(const SettingsSources& sources, const char* name) {
  auto value = sources.environment(name);
  return value && !value->empty() ? value : std::nullopt;
}

std::string user_folder(const SettingsSources& sources, const char* variable,
                        const char* otherwise) {
  auto folder = value_of(sources, variable);
  if (!folder || folder->front() != '/') {  // XDG: relative paths are ignored
    folder = join_path(value_of(sources, "HOME").value_or("/"), otherwise);
  }
  return join_path(*folder, "cukiln");
}

SettingsSources SettingsSources::of_this_process() {
  SettingsSources sources;
  sources.secure_process = ::getauxval(AT_SECURE) != 0;
  sources.environment = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): the only reader
    // A relative $HOME is ignored: it would be another folder in each process.
    if ((value == nullptr || value[0] != '/') && std::string_view(name) == "HOME") {
      return home_in_password_database();
    }
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  sources.variables = [] {
    std::vector<std::string> names;
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
      const std::string_view variable = *one;
      if (variable.substr(0, kVariablePrefix.size()) == kVariablePrefix) {
        names.emplace_back(variable.substr(0, variable.find('=')));
      }
    }
    return names;
  };
  return sources;
}

std::string default_store_directory(const SettingsSources& sources) {
  return user_folder(sources, "XDG_CACHE_HOME", ".cache");
}

std::vector<std::string> daemon_sockets(const SettingsSources& sources) {
  if (sources.secure_process) {
    return {};
  }
  std::vector<std::string> sockets;
  if (const auto runtime = value_of(sources, "XDG_RUNTIME_DIR");
      runtime && runtime->front() == '/') {
    sockets.push_back(join_path(*runtime, "cukiln/cukilnd.sock"));
  }
  const std::string temporary = value_of(sources, "TMPDIR").value_or("/tmp");
  sockets.push_back(join_path(temporary, fmt::format("cukiln-{}/cukilnd.sock", ::geteuid())));
  return sockets;
}

std::vector<std::string> daemon_sockets(const SettingsSources& sources, const StoreOptions& store) {
  return store.daemon == DaemonUse::off ? std::vector<std::string>()
         : !store.daemon_socket.empty() ? std::vector<std::string>{store.daemon_socket}
                                        : daemon_sockets(sources);
}

}  // namespace cukiln
