// SPDX-License-Identifier: Apache-2.0
#include "core/loader/settings.hpp"

#include <doctest/doctest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/store/store_admin.hpp"
#include "support/scratch.hpp"

#include <cukiln/store.hpp>

using namespace cukiln;
using cukiln::testing::ScratchFolder;

namespace {

struct Fixture {
  ScratchFolder scratch;
  std::map<std::string, std::string> environment{{"HOME", scratch.path()}};
  SettingsSources sources() {
    SettingsSources s;
    s.environment = [this](const char* name) -> std::optional<std::string> {
      const auto at = environment.find(name);
      return at == environment.end() ? std::nullopt : std::optional(at->second);
    };
    s.variables = [this] {
      std::vector<std::string> names;
      for (const auto& [name, value] : environment) {
        if (name.rfind("CUKILN_", 0) == 0) names.push_back(name);
      }
      return names;
    };
    s.system_file = scratch / "etc/config.toml";
    return s;
  }
  Settings resolve() { return *load_settings(sources()); }
  static std::string origin(const Settings& settings, const std::string& name) {
    for (const Setting& setting : settings.all) {
      if (setting.name == name) return setting.origin;
    }
    return "no such setting";
  }
};

}  // namespace

// fault 459
TEST_CASE_FIXTURE(Fixture, "a misspelt setting is reported with the one that was meant") {
  environment["CUKILN_STOR"] = "/x";
  environment["CUKILN_WHOLLY_DIFFERENT"] = "1";
  environment["CUKILN_OFFLINE"] = "1";
  environment["CUKILN_VLLM"] = environment["CUKILN_LIBRARY"] = environment["CUKILN_TEST_ROOT"] =
      "1";
  scratch.write(".config/cukiln/config.toml", "remot = \"\"\nwholly_different = 1\n");
  const std::vector<std::string> warnings = resolve().warnings;
  REQUIRE(warnings.size() == 4);
  CHECK(warnings[0].find("unknown key \"remot\"; did you mean \"remote\"?") != std::string::npos);
  CHECK(warnings[1].find("unknown key \"wholly_different\"") != std::string::npos);
  CHECK(warnings[1].find("did you mean") == std::string::npos);
  CHECK(warnings[2] == "CUKILN_STOR is not a setting; did you mean CUKILN_STORE?");
  CHECK(warnings[3] == "CUKILN_WHOLLY_DIFFERENT is not a setting; 'cukiln config' lists them");
}

TEST_CASE_FIXTURE(Fixture, "the files that were looked for are named, the user's first") {
  scratch.write(".config/cukiln/config.toml", "");
  const std::vector<ConfigFile> files = resolve().files;
  REQUIRE(files.size() == 2);
  CHECK(files[0].path == scratch / ".config/cukiln/config.toml");
  CHECK(files[0].exists);
  CHECK(files[1].path == scratch / "etc/config.toml");
  CHECK_FALSE(files[1].exists);
}

TEST_CASE_FIXTURE(Fixture, "the remote stores are a list with commas, in a file a list") {
  environment["CUKILN_REMOTE"] = "redis://a:1,http://b/c";
  environment["CUKILN_REMOTE_TIMEOUT_MS"] = "50";
  environment["CUKILN_DAEMON_SOCKET"] = scratch.path();
  CHECK(resolve().remote.stores == "redis://a:1,http://b/c");
  CHECK(resolve().remote.timeout == std::chrono::milliseconds(50));
  const std::string keys = scratch.write("keys", "");
  scratch.write(".config/cukiln/config.toml",
                "remote_trust = [\"a:b\", \"" + keys + "\"]\nremote_sign = \"/key\"\n");
  CHECK(resolve().remote.trust == "a:b," + keys);
  CHECK(resolve().remote.sign == "/key");
  for (const char* wrong : {"0", "fast", "-1", "10s"}) {
    environment["CUKILN_REMOTE_TIMEOUT_MS"] = wrong;
    CHECK(resolve().remote.timeout == std::chrono::milliseconds(200));
    CHECK(resolve().warnings.size() == 1);
  }
}

TEST_CASE_FIXTURE(Fixture, "a host without cukilnd is warned that it asks no remote store") {
  environment["CUKILN_REMOTE_SIGN"] = "/key";
  CHECK(resolve().warnings == std::vector<std::string>{"remote_sign has no effect without remote"});
  environment["CUKILN_REMOTE"] = "redis://a:1";
  environment["TMPDIR"] = scratch.path();
  const std::vector<std::string> warnings = resolve().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("remote is used only by cukilnd and the command line") == 0);
  environment["CUKILN_DAEMON_SOCKET"] = scratch.write("cukilnd.sock", "");
  CHECK(resolve().warnings.empty());
  environment["CUKILN_DAEMON"] = "off";
  CHECK(resolve().warnings == warnings);
}

TEST_CASE_FIXTURE(Fixture, "jobs and memory are numbers, or auto: what the machine has") {
  const auto value = [](const Settings& settings, const std::string& name) {
    const auto at = std::find_if(settings.all.begin(), settings.all.end(),
                                 [&](const Setting& one) { return one.name == name; });
    return at->value;
  };
  CHECK(resolve().loader.jobs == 0);
  CHECK(resolve().loader.memory_bytes == 0);
  CHECK(value(resolve(), "jobs") == "auto");
  CHECK(value(resolve(), "memory") == "auto");
  scratch.write("etc/config.toml", "jobs = 3\nmemory = \"2GiB\"\n");
  CHECK(resolve().loader.jobs == 3);
  CHECK(resolve().loader.memory_bytes == 2ull << 30);
  environment["CUKILN_JOBS"] = "5";
  environment["CUKILN_MEMORY"] = "auto";
  CHECK(resolve().loader.jobs == 5);
  CHECK(resolve().loader.memory_bytes == 0);
  CHECK(value(resolve(), "jobs") == "5");
  environment["CUKILN_MEMORY"] = "1";
  for (const char* const wrong : {"0", "-1", "many", "2000", "1.5"}) {
    CAPTURE(wrong);
    environment["CUKILN_JOBS"] = wrong;
    CHECK(resolve().loader.jobs == 3);  // the file's
    CHECK(resolve().warnings.size() == 1);
  }
  environment["CUKILN_JOBS"] = "1";
  for (const char* const wrong : {"0", "-1", "much", "1 parsec"}) {
    CAPTURE(wrong);
    environment["CUKILN_MEMORY"] = wrong;
    CHECK(resolve().loader.memory_bytes == 2ull << 30);
    CHECK(resolve().warnings.size() == 1);
  }
}

TEST_CASE("Store::open refuses a relative directory and degrades for everything else") {
  StoreOptions relative;
  relative.directory = "cache";
  CHECK(Store::open(relative).error().code() == ErrorCode::invalid_argument);
  StoreOptions impossible;
  impossible.directory = "/proc/cukiln";
  const auto store = Store::open(impossible);
  REQUIRE(store);
  CHECK_FALSE(store->bypass_reason().empty());
  StoreOptions memory;
  memory.memory_only = true;
  CHECK(Store::open(memory)->bypass_reason() == "kernels are kept in memory only, as configured");
}

TEST_CASE("Store::open without a directory opens the one that the settings name") {
  const ScratchFolder scratch;
  StoreOptions options;
  options.system_directory.clear();
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
  auto store = Store::open(options);
  const auto settings = Settings::load();
  before != nullptr ? ::setenv("XDG_CACHE_HOME", kept.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  REQUIRE(store);
  CHECK(store->bypass_reason() == "");
  CHECK(StoreAdmin(*store).facts().directory == scratch / "cukiln/v6");
  CHECK(settings->store.directory == scratch / "cukiln");
}

TEST_CASE("without HOME there is the password database's") {
  const char* const before = std::getenv("HOME");
  const std::string kept = before != nullptr ? before : "";
  const struct passwd* const user = ::getpwuid(::geteuid());
  REQUIRE(user != nullptr);
  const auto home = [] { return SettingsSources::of_this_process().environment("HOME"); };
  ::unsetenv("HOME");
  CHECK(home() == std::string(user->pw_dir));
  for (const char* const none : {"", "relative"}) {
    ::setenv("HOME", none, 1);
    CHECK(home() == std::string(user->pw_dir));
  }
  before != nullptr ? ::setenv("HOME", kept.c_str(), 1) : ::unsetenv("HOME");
}

TEST_CASE_FIXTURE(Fixture, "the store is in XDG_CACHE_HOME, else in ~/.cache") {
  CHECK(resolve().store.directory == scratch / ".cache/cukiln");
  environment["XDG_CACHE_HOME"] = "/xdg";
  CHECK(resolve().store.directory == "/xdg/cukiln");
  environment["XDG_CACHE_HOME"] = "relative";  // its specification: counts as none
  CHECK(resolve().store.directory == scratch / ".cache/cukiln");
}

TEST_CASE_FIXTURE(Fixture,
                  "environment over the user's file over the system's file over the default") {
  CHECK(origin(resolve(), "max_size") == "default");
  scratch.write("etc/config.toml", "max_size = \"1GiB\"\nlog = \"debug\"\nstore = \"/system\"\n");
  CHECK(resolve().store.max_bytes == 1ull << 30);
  scratch.write(".config/cukiln/config.toml",
                "max_size = \"3M\"\nstore = \"/user\"\noffline = true\n");
  environment["CUKILN_STORE"] = "/environment";
  const Settings settings = resolve();
  CHECK(settings.store.max_bytes == 3ull << 20);
  CHECK(settings.store.directory == "/environment");
  CHECK(settings.loader.offline);
  CHECK(settings.log_level == LogLevel::debug);
  CHECK(origin(settings, "store") == "environment CUKILN_STORE");
  CHECK(origin(settings, "max_size") == scratch / ".config/cukiln/config.toml");
  CHECK(origin(settings, "log") == scratch / "etc/config.toml");
  CHECK(settings.warnings.empty());
}

TEST_CASE_FIXTURE(Fixture, "a file that is no TOML is ignored with a warning that says why") {
  for (const char* text : {
           "store = \n",
           "[\n",
           "\xCB\x8A\n",
           "store = \"/a\" \xCB\x8A\n",
           "store = [\"/a\", \xC5\x9F]\n",
           "store = '''\n\"'''\xC3\xA9\n",
           "store = 0\"/a\xCE\x8C\"\n",
           "store = \"/\xFF\"\n",
       }) {
    CAPTURE(text);
    scratch.write("etc/config.toml", text);
    const Settings settings = resolve();
    CHECK(origin(settings, "store") == "default");
    REQUIRE(settings.warnings.size() == 1);
    CHECK(settings.warnings.front().find("is ignored") != std::string::npos);
  }
  scratch.write("etc/config.toml", "\xEF\xBB\xBFstore = \"/\xC3\xBC\\\"\"  # \xC3\xBC\n");
  CHECK(resolve().store.directory == "/\xC3\xBC\"");
  scratch.write("etc/config.toml", "store = \"\"\"/a\\\n\xC2\xA7\\u00e9\"\"\"\n");
  CHECK(resolve().store.directory == "/a\xC2\xA7\xC3\xA9");
  scratch.write("etc/config.toml", "store = '/\xF3\xB0\x83\x83'\n");  // looks like a stand-in
  CHECK(resolve().store.directory == "/\xF3\xB0\x83\x83");
}

TEST_CASE_FIXTURE(Fixture, "a value that makes no sense is ignored with a warning that names it") {
  environment["CUKILN_MAX_SIZE"] = "lots";
  environment["CUKILN_LOG"] = "loud";
  environment["CUKILN_OFFLINE"] = "maybe";
  scratch.write(".config/cukiln/config.toml", "colour = \"blue\"\n");
  const Settings settings = resolve();
  CHECK(settings.store.max_bytes == 2ull << 30);
  CHECK_FALSE(settings.loader.offline);
  REQUIRE(settings.warnings.size() == 4);
  const auto mentions = [&](const char* text) {
    return std::any_of(settings.warnings.begin(), settings.warnings.end(),
                       [&](const std::string& w) { return w.find(text) != std::string::npos; });
  };
  CHECK(mentions("lots"));
  CHECK(mentions("loud"));
  CHECK(mentions("maybe"));
  CHECK(mentions("colour"));
}

TEST_CASE_FIXTURE(Fixture, "a configuration file that is no TOML costs nothing but a warning") {
  scratch.write(".config/cukiln/config.toml", "store = [unclosed");
  const Settings settings = resolve();
  CHECK(settings.store.directory == scratch / ".cache/cukiln");
  REQUIRE(settings.warnings.size() == 1);
  CHECK(settings.warnings[0].find("config.toml") != std::string::npos);
}

// fault 112
TEST_CASE_FIXTURE(Fixture, "a configuration that others may write is ignored, and said why") {
  const std::string file = scratch.write(".config/cukiln/config.toml", "worker = \"/evil\"\n");
  ::chmod(file.c_str(), 0666);
  const Settings settings = resolve();
  CHECK(settings.loader.worker.empty());
  REQUIRE(settings.warnings.size() == 1);
  CHECK(settings.warnings[0].find(file + " is ignored") == 0);
  CHECK(settings.warnings[0].find("everybody may write it (mode 0666)") != std::string::npos);
  ::chmod(file.c_str(), 0644);
  CHECK(resolve().loader.worker == "/evil");
}

// fault 116
TEST_CASE_FIXTURE(Fixture, "what remote_trust revokes is known to the store") {
  const std::string key = "fleet:" + std::string(43, 'A') + "=";
  environment["CUKILN_REMOTE_TRUST"] = scratch.write("trust", "revoked " + key + "\n");
  CHECK(resolve().store.revoked_keys == std::vector<std::string>{key});
  CHECK(resolve().warnings.empty());
  environment["CUKILN_REMOTE_TRUST"] = key;
  CHECK(resolve().store.revoked_keys.empty());
  environment["CUKILN_REMOTE_TRUST"] = scratch / "none";
  CHECK(resolve().warnings.size() == 1);
}

// fault 406
TEST_CASE_FIXTURE(Fixture, "what remote_trust limits to some modules is known to the store") {
  const std::string key = "fleet:" + std::string(43, 'A') + "=";
  environment["CUKILN_REMOTE_TRUST"] = key + " expires=2027-01-31 modules=nvfp4_";
  CHECK(resolve().store.scoped_keys == std::vector<std::string>{key + " modules=nvfp4_"});
  CHECK(resolve().warnings.empty());
  environment["CUKILN_REMOTE_TRUST"] =
      scratch.write("trust", key + " scope=nvfp4_\nrevoked " + key + "\n");
  CHECK(resolve().store.revoked_keys == std::vector<std::string>{key});
  CHECK(resolve().store.scoped_keys == std::vector<std::string>{key + " scope=nvfp4_"});
}

TEST_CASE_FIXTURE(
    Fixture, "fault 37: a set-user-id process ignores the environment and keeps nothing on disk") {
  environment["CUKILN_STORE"] = "/attacker";
  environment["CUKILN_WORKER"] = "/attacker/worker";
  environment["NVTX_INJECTION64_PATH"] = "/attacker/profiler.so";
  CHECK(load_settings(sources())->loader.nvtx_library == "/attacker/profiler.so");
  scratch.write(".config/cukiln/config.toml", "nvrtc_library = \"/attacker/lib.so\"\n");
  SettingsSources secure = sources();
  secure.secure_process = true;
  const Settings settings = *load_settings(secure);
  CHECK(settings.store.memory_only);
  CHECK(settings.store.directory.empty());
  CHECK(settings.loader.worker.empty());
  CHECK(settings.loader.nvrtc_library.empty());
  CHECK(settings.loader.nvtx_library.empty());
}

TEST_CASE_FIXTURE(Fixture, "lists are split at colons, or are lists in TOML") {
  environment["CUKILN_INCLUDE_PATH"] = "/a:/b c:";
  CHECK(resolve().loader.include_path == std::vector<std::string>{"/a", "/b c"});
  environment.erase("CUKILN_INCLUDE_PATH");
  scratch.write(".config/cukiln/config.toml", "include_path = [\"/x\", \"/y\"]\n");
  CHECK(resolve().loader.include_path == std::vector<std::string>{"/x", "/y"});
}

TEST_CASE("sizes take the usual units and nothing else") {
  CHECK(*parse_bytes("0") == 0);
  CHECK(*parse_bytes("1048576") == 1 << 20);
  CHECK(*parse_bytes("512M") == 512ull << 20);
  CHECK(*parse_bytes("2GiB") == 2ull << 30);
  CHECK(*parse_bytes("2 gb") == 2ull << 30);
  CHECK(*parse_bytes("1T") == 1ull << 40);
  for (const char* bad :
       {"", "GiB", "-1", "1.5G", "2X", "2GiBs", "99999999999999999999", "99999999999T"}) {
    CHECK_FALSE(parse_bytes(bad));
  }
}

TEST_CASE_FIXTURE(Fixture, "fault 310: a deleted setting has no effect, and a warning names it") {
  scratch.write("etc/config.toml", "worker_socket = \"/run/w/worker.sock\"\nmax_size = \"1GiB\"\n");
  environment["CUKILN_DAEMON_WATCH"] = "1";
  environment["CUKILN_SIGNER_SOCKET"] = "/run/s/sign.sock";
  const Settings settings = resolve();
  CHECK(settings.store.max_bytes == 1ull << 30);  // the rest of the file counts
  CHECK(origin(settings, "worker_socket") == "no such setting");
  const std::string why =
      " has no effect since 0.4, because cukilnd serves one user and starts its own workers; "
      "remove it";
  REQUIRE(settings.warnings.size() == 3);
  CHECK(settings.warnings[0] == scratch / "etc/config.toml" + ": worker_socket" + why);
  CHECK(settings.warnings[1] ==
        "CUKILN_DAEMON_WATCH has no effect since 0.4, because cukilnd compiles what is requested, "
        "and watches no sources; remove it");
  CHECK(settings.warnings[2] == "CUKILN_SIGNER_SOCKET" + why);
}
