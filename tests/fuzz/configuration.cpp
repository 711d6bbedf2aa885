// SPDX-License-Identifier: Apache-2.0
// libFuzzer: resolves settings from config.toml and the environment. Built by scripts/fuzz.
//
// The input up to the first NUL is the file. The values of the variables in kVariables follow, with
// a NUL between two. Rule: settings are resolved, or rejected with a message that says why.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/loader/config_text.hpp"
#include "core/loader/settings.hpp"
#include "fuzz/require.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

constexpr std::array kVariables{
    "CUKILN_STORE",         "CUKILN_MAX_SIZE",     "CUKILN_JOBS",
    "CUKILN_DAEMON",        "CUKILN_LOG",          "CUKILN_REMOTE",
    "CUKILN_DISABLE_STORE", "CUKILN_INCLUDE_PATH", "CUKILN_REMOTE_TIMEOUT_MS",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteView rest(reinterpret_cast<const char*>(data), size);
  const std::size_t file_bytes = std::min(rest.find('\0'), rest.size());
  static_cast<void>(parse_config(rest.substr(0, file_bytes), "config.toml"));
  const UniqueFd file(::memfd_create("config", MFD_CLOEXEC));
  require(::fchmod(file.get(), 0600) == 0, "memory is as private as a user's file");
  require(::write(file.get(), rest.data(), file_bytes) == static_cast<ssize_t>(file_bytes),
          "memory takes a file");
  rest.remove_prefix(file_bytes);

  std::map<std::string, std::string> environment{{"HOME", "/nowhere"}};
  for (std::size_t i = 0; i < kVariables.size() && !rest.empty(); ++i) {
    rest.remove_prefix(1);
    const ByteView value = rest.substr(0, rest.find('\0'));
    if (!value.empty()) {
      environment[kVariables[i]] = value;
    }
    rest.remove_prefix(value.size());
  }
  SettingsSources sources;
  sources.environment = [&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found != environment.end() ? std::optional(found->second) : std::nullopt;
  };
  sources.system_file = "/proc/self/fd/" + std::to_string(file.get());
  const auto settings = load_settings(sources);
  if (!settings) {
    require(!settings.error().message().empty(), "what is refused has a reason");
    return 0;
  }
  for (const Setting& setting : settings->all) {
    require(!setting.name.empty() && !setting.origin.empty(), "a setting says where it is from",
            setting.name);
  }
  return 0;
}
