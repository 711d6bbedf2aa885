// SPDX-License-Identifier: Apache-2.0
#include "core/compile/bundled_headers.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "core/base/file.hpp"
#include "core/base/file_lock.hpp"
#include "core/base/hasher.hpp"
#include "core/base/poll_until.hpp"
#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "core/compile/spawn.hpp"

namespace cukiln {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kInstallTimeout{60};
constexpr std::size_t kMaxReplyBytes = 4096;

constexpr const char* kRuntimeHeader = "cuda_runtime.h";
// Part of the key of each kernel that includes it: an edit is one compile for every user.
constexpr std::string_view kRuntimeText =
    "// Stands in for CUDA's cuda_runtime.h beside the headers that NVRTC carries, which lack it.\n"
    "// NVRTC predefines what device code uses of it: vector types, built-in variables, error\n"
    "// codes, handles of streams and events, CUDART_VERSION.\n"
    "#pragma once\n";

/// `nvrtc-13.5.37-1f2e3d4c5b6a7988`: another NVRTC, or another text of ours, is another folder.
std::string name_of_folder(const Toolchain& toolchain) {
  return fmt::format("nvrtc-{}-{}", toolchain.version,
                     hash_of({view_of(toolchain.content), kRuntimeText}).hex().substr(0, 16));
}

Error cannot_install(const std::string& folder, const std::string& why) {
  return make_error(ErrorCode::io,
                    "the headers that NVRTC carries cannot be installed in {}: {}; make the folder "
                    "writable and free 30 MB there, or set CUKILN_INCLUDE_PATH to CUDA's headers",
                    folder, why);
}

/// Reads what the child sends until it ends; `timeout` if it does not.
Result<std::string> read_reply(const SpawnedProcess& child) {
  const auto deadline = steady_clock::now() + kInstallTimeout;
  std::string reply;
  for (;;) {
    pollfd polled{child.socket.get(), POLLIN, 0};
    const Polled state = poll_until(&polled, 1, deadline);
    if (state == Polled::waiting && steady_clock::now() < deadline) {
      continue;
    }
    if (state != Polled::ready) {
      return make_error(ErrorCode::timeout, "it took longer than {} s", kInstallTimeout.count());
    }
    std::array<char, 512> part{};
    const ssize_t got = ::read(child.socket.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0 || reply.size() > kMaxReplyBytes) {
      return reply;
    }
    reply.append(part.data(), static_cast<std::size_t>(got));
  }
}

void end_process(const SpawnedProcess& child) {
#ifdef SYS_pidfd_send_signal
  if (child.process) {
    ::syscall(SYS_pidfd_send_signal, child.process.get(), SIGKILL, nullptr, 0);
  }
#endif
  if (child.ours_to_reap) {
    pollfd polled{child.process.get(), POLLIN, 0};
    poll_until(&polled, 1, steady_clock::now() + std::chrono::seconds(1));
    reap_if_ours(child.process.get());
  }
}

/// Lets a child install the headers into `folder`, which does not exist.
Result<void> run_installer(const std::string& worker, const NvrtcInstall& install,
                           const std::string& folder) {
  CUKILN_TRY(const UniqueFd program, open_trusted_file(worker, "the compile worker", O_PATH));
  CUKILN_TRY(
      const SpawnedProcess child,
      spawn_detached(worker, {"--install-headers", install.library, install.builtins, folder},
                     program.get()));
  const auto reply = read_reply(child);
  end_process(child);
  if (!reply) {
    return cannot_install(folder, reply.error().message());
  }
  if (*reply != kHeadersInstalled) {
    return cannot_install(folder, reply->empty() ? "the process ended early" : *reply);
  }
  return {};
}

/// Makes what NVRTC has installed the same everywhere: without its marker, which has the time, and
/// its lock.
Result<void> complete(const std::string& folder) {
  std::error_code failed;
  for (const char* name : {".nvrtc_headers_version", ".nvrtc_install.lock"}) {
    std::filesystem::remove(join_path(folder, name), failed);
  }
  const std::string runtime = join_path(folder, kRuntimeHeader);
  if (!std::filesystem::exists(runtime, failed)) {
    CUKILN_CHECK(write_file_atomically(runtime, kRuntimeText));
  }
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::syncfs(opened.get()) != 0) {  // the folder's new name says that all is there
    return cannot_install(folder, errno_text(errno));
  }
  return {};
}

}  // namespace

bool carries_headers(std::string_view nvrtc_version) { return !is_older(nvrtc_version, {13, 3}); }

Result<std::string> install_bundled_headers(const std::string& worker, const NvrtcInstall& install,
                                            const Toolchain& toolchain, const std::string& parent) {
  std::string folder = join_path(parent, name_of_folder(toolchain));
  std::error_code failed;
  if (std::filesystem::is_directory(folder, failed)) {
    return folder;
  }
  if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) {
    return cannot_install(parent, errno_text(errno));
  }
  const auto lock = FileLock::acquire(join_path(parent, "install.lock"), FileLock::Mode::exclusive,
                                      kInstallTimeout);
  if (!lock) {
    return cannot_install(parent, lock.error().message());
  }
  if (std::filesystem::is_directory(folder, failed)) {  // another process was first
    return folder;
  }
  const std::string part = folder + ".part";
  std::filesystem::remove_all(part, failed);  // of a process that was killed
  auto installed = run_installer(worker, install, part);
  if (installed) {
    installed = complete(part);
  }
  if (installed && ::rename(part.c_str(), folder.c_str()) != 0) {
    installed = cannot_install(folder, errno_text(errno));
  }
  if (!installed) {
    std::filesystem::remove_all(part, failed);
    return std::move(installed).error();
  }
  return folder;
}

}  // namespace cukiln
