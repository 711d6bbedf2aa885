// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/service_manager.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr int kFirstDescriptor = 3;
constexpr int kMaxDescriptors = 16;

/// Returns and removes an environment variable.
std::string take_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text;
}

/// The number in a text, or 0.
long number(const std::string& text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ':') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

bool has_option(int fd, int option, int expected) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == expected;
}

bool is_listening_unix_socket(int fd) {
  return has_option(fd, SO_ACCEPTCONN, 1) && has_option(fd, SO_DOMAIN, AF_UNIX) &&
         has_option(fd, SO_TYPE, SOCK_STREAM);
}

}  // namespace

ServiceManager ServiceManager::of_this_process() {
  ServiceManager manager;
  const long listen_pid = number(take_variable("LISTEN_PID"));
  const std::string listen_fds = take_variable("LISTEN_FDS");
  const std::vector<std::string> names = names_in(take_variable("LISTEN_FDNAMES"));
  manager.notify_socket = take_variable("NOTIFY_SOCKET");
  const long watchdog_pid = number(take_variable("WATCHDOG_PID"));
  const std::string interval = take_variable("WATCHDOG_USEC");
  if (watchdog_pid == 0 || watchdog_pid == ::getpid()) {
    manager.watchdog = std::chrono::microseconds(number(interval));
  }
  if (listen_pid != ::getpid()) {  // meant for another process
    return manager;
  }
  const long count = number(listen_fds);
  if (count <= 0 || count > kMaxDescriptors) {
    manager.warnings.push_back(
        fmt::format("invalid LISTEN_FDS={}: expected a number from 1 to {}; cukilnd opens its own "
                    "socket",
                    listen_fds, kMaxDescriptors));
    return manager;
  }
  for (int i = 0; i < static_cast<int>(count); ++i) {
    UniqueFd fd(kFirstDescriptor + i);
    ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    const std::string name = static_cast<std::size_t>(i) < names.size() ? names[i] : "";
    UniqueFd& socket = name == "ops" ? manager.admin_socket : manager.ipc_socket;
    if (socket || !is_listening_unix_socket(fd.get())) {
      manager.warnings.push_back(fmt::format(
          "descriptor {} ({}) of the service manager is not used and closed: {}", fd.get(),
          name.empty() ? "unnamed" : name,
          socket ? "another one has this role" : "expected a Unix stream socket that listens"));
      continue;
    }
    socket = std::move(fd);
  }
  return manager;
}

void ServiceManager::notify(std::string_view state, bool waits) const {
  sockaddr_un to{};
  if (notify_socket.empty() || notify_socket.size() >= sizeof to.sun_path) {
    return;
  }
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, notify_socket.data(), notify_socket.size());
  if (to.sun_path[0] == '@') {
    to.sun_path[0] = '\0';  // the abstract namespace
  }
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval at_most{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &at_most, sizeof at_most);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket.size());
  ::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT),
           reinterpret_cast<const sockaddr*>(&to), size);
}

}  // namespace cukiln::daemon
