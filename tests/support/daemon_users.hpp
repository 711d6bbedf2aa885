// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"

namespace cukiln::testing {

inline constexpr uid_t kAlice = 64'001;
inline constexpr uid_t kMallory = 64'002;

/// This process is another user for a while, where files and sockets are made.
class Being {
 public:
  explicit Being(uid_t user) {
    REQUIRE(::setegid(user) == 0);
    REQUIRE(::seteuid(user) == 0);
  }
  ~Being() { static_cast<void>(::seteuid(0) == 0 && ::setegid(0) == 0); }
};

/// Several users of a machine. Only root can become each of them.
struct Users : DaemonFixture {
  // Root of a namespace with one user in it cannot become another user either.
  bool is_root = ::geteuid() == 0 &&
                 std::system("setpriv --reuid=64001 --regid=64001 --clear-groups true") == 0;

  Users() {
    if (!is_root) {
      MESSAGE("not root: no other user can be played");
      return;
    }
    // Others may come in here, and need no way to where this was built.
    open_to_all(scratch.path(), 0755);
    std::filesystem::create_directory(scratch / "bin");
    open_to_all(scratch / "bin", 0755);
    for (const char* program :
         {"cukilnd", "cukiln-compile-worker", "build_process", "libnvrtc_fake.so"}) {
      std::filesystem::copy_file(bin() + "/" + program, in_bin(program));
    }
  }
  std::string in_bin(const std::string& program) const { return scratch / ("bin/" + program); }
  static void open_to_all(const std::string& path, mode_t mode) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
  }
  /// A folder of that user, which no other user can enter.
  std::string home_of(uid_t user) const {
    std::string path = scratch / std::to_string(user);
    std::filesystem::create_directory(path);
    REQUIRE(::chown(path.c_str(), user, user) == 0);
    open_to_all(path, 0700);
    return path;
  }
  std::unique_ptr<Child> run_as(uid_t user, std::vector<std::string> command,
                                std::vector<std::string> environment) const {
    const std::string id = std::to_string(user);
    command.insert(command.begin(), {"/bin/sh", "-c",
                                     "exec setpriv --reuid=" + id + " --regid=" + id +
                                         " --clear-groups -- \"$0\" \"$@\" 2>&1"});
    environment.push_back("CUKILN_NVRTC_LIBRARY=" + in_bin("libnvrtc_fake.so"));
    environment.push_back("XDG_CONFIG_HOME=" + scratch / "no-config");
    environment.push_back("XDG_CACHE_HOME=" + scratch / "no-cache");
    return std::make_unique<Child>(command, environment);
  }
  /// A process of theirs that wants a kernel; what it logs is among its output.
  std::unique_ptr<Child> client_of(uid_t user, const std::string& path, const std::string& variable,
                                   const std::string& store = "store") const {
    return run_as(user,
                  {in_bin("build_process"), home_of(user) + "/" + store, in_bin("libnvrtc_fake.so"),
                   in_bin("cukiln-compile-worker"), path, "log"},
                  {variable, "HOME=" + home_of(user)});
  }
  static std::string all_of(Child& child) {
    std::string text;
    for (const std::string& line : child.lines()) {
      text += line + "\n";
    }
    return text;
  }
  std::string readable(const std::string& name, const std::string& text) const {
    std::string path = scratch.write("src/" + name, text);
    open_to_all(scratch / "src", 0755);
    open_to_all(path, 0644);
    return path;
  }
};

}  // namespace cukiln::testing
