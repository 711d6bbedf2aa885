// SPDX-License-Identifier: Apache-2.0
#include "core/compile/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"
#include "core/compile/spawn.hpp"

#include <cukiln/version.hpp>

namespace cukiln {

namespace {

constexpr const char* kWorkerName = "cukiln-compile-worker";
constexpr const char* kWorkerKind = "the compile worker";
constexpr int kReapTimeoutMs = 1000;
constexpr off_t kStderrTailBytes = 600;

void send_kill(int process) {
#ifdef SYS_pidfd_send_signal
  if (process >= 0) {
    ::syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
  }
#else
  static_cast<void>(process);
#endif
}

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const WorkerOptions& options,
                                                            const wire::WaitOptions& wait) {
  CUKILN_TRY(std::unique_ptr<WorkerProcess> worker, launch(options));
  CUKILN_CHECK(worker->await_hello(wait));
  return worker;
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::launch(const WorkerOptions& options) {
  CUKILN_TRY(const UniqueFd program, open_trusted_file(options.path, kWorkerKind, O_PATH));
  std::vector<std::string> arguments = {options.library, options.builtins,
                                        std::to_string(options.memory_bytes),
                                        std::to_string(options.idle.count())};
  if (options.links) {
    arguments.emplace_back("link");
  }
  CUKILN_TRY(SpawnedProcess spawned, spawn_detached(options.path, arguments, program.get()));
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess);
  worker->path_ = options.path;
  worker->links_ = options.links;
  worker->owner_ = ::getpid();
  worker->pid_ = spawned.pid;
  worker->ours_to_reap_ = spawned.ours_to_reap;
  worker->socket_ = KeptFd(std::move(spawned.socket));
  worker->process_ = KeptFd(std::move(spawned.process));
  worker->error_log_ = KeptFd(std::move(spawned.error_log));
  worker->frames_ = std::make_unique<wire::FrameSocket>(worker->socket_.get());
  return worker;
}

Result<void> WorkerProcess::await_hello(const wire::WaitOptions& wait) {
  const WorkerReply reply = receive(wait);
  if (reply.failure == WorkerFailure::timeout || reply.failure == WorkerFailure::cancelled) {
    return make_error(ErrorCode::timeout, "the compile worker {} did not start in time", path_);
  }
  const auto hello =
      reply.is(wire::WorkerOp::hello) ? wire::Hello::decode(reply.frame.body) : std::nullopt;
  if (!hello) {
    return make_error(ErrorCode::internal,
                      "the compile worker {} ended before it was ready{}. Expected the worker "
                      "that was built with this library; check its limits on descriptors and "
                      "memory (ulimit -n, ulimit -v)",
                      path_,
                      reply.failure == WorkerFailure::crashed
                          ? fmt::format(" (signal {})", reply.crash.signal)
                          : stderr_tail());
  }
  if (hello->protocol != wire::kWorkerProtocol) {
    return make_error(ErrorCode::incompatible,
                      "the compile worker {} has protocol version {}, expected {}: use the worker "
                      "that was built with this library",
                      path_, hello->protocol, wire::kWorkerProtocol);
  }
  if (!hello->error.empty()) {
    return make_error(ErrorCode::not_found, "{} cannot be opened: {}",
                      links_ ? "nvJitLink" : "NVRTC", hello->error);
  }
  hello_ = *hello;
  return {};
}

WorkerProcess::~WorkerProcess() {
  if (owner_ != ::getpid()) {
    return;  // in a forked child, which closes its copies; a shutdown would end the worker
  }
  ::shutdown(socket_.get(), SHUT_RDWR);
  send_kill(process_.get());
  if (ours_to_reap_) {
    pollfd polled{process_.get(), POLLIN, 0};
    ::poll(&polled, 1, kReapTimeoutMs);
    reap_if_ours(process_.get());
  }
}

wire::WaitOptions WorkerProcess::with_peer(wire::WaitOptions wait) const {
  wait.peer_process = process_.get();
  return wait;
}

bool WorkerProcess::send(wire::WorkerOp op, std::initializer_list<ByteView> parts,
                         const wire::WaitOptions& wait) {
  return socket_.get() >= 0 && frames_->send(static_cast<std::uint16_t>(op), parts,
                                             with_peer(wait)) == wire::IoStatus::ok;
}

WorkerReply WorkerProcess::receive(const wire::WaitOptions& wait) {
  WorkerReply reply;
  if (socket_.get() < 0) {  // the host closed it
    reply.failure = WorkerFailure::closed;
    return reply;
  }
  switch (frames_->receive(reply.frame, with_peer(wait))) {
    case wire::IoStatus::ok: break;
    case wire::IoStatus::closed: reply.failure = WorkerFailure::closed; return reply;
    case wire::IoStatus::timeout: reply.failure = WorkerFailure::timeout; return reply;
    case wire::IoStatus::cancelled: reply.failure = WorkerFailure::cancelled; return reply;
    case wire::IoStatus::malformed: reply.failure = WorkerFailure::protocol_error; return reply;
  }
  if (reply.is(wire::WorkerOp::crashed)) {
    const auto crash = wire::Crashed::decode(reply.frame.body);
    reply.failure = crash ? WorkerFailure::crashed : WorkerFailure::protocol_error;
    reply.crash = crash.value_or(wire::Crashed{});
  }
  return reply;
}

WorkerReply WorkerProcess::request(wire::WorkerOp op, const std::string& body,
                                   const wire::WaitOptions& wait, int descriptor) {
  // Receives even if the send failed: the worker may have reported a crash before it ended.
  if (socket_.get() >= 0) {
    frames_->send(static_cast<std::uint16_t>(op), {body}, with_peer(wait), descriptor);
  }
  return receive(wait);
}

bool WorkerProcess::alive() const {
  std::array<pollfd, 2> polled{{{socket_.get(), POLLRDHUP, 0}, {process_.get(), POLLIN, 0}}};
  return polled[0].fd >= 0 && ::poll(polled.data(), polled.size(), 0) == 0;
}

std::string WorkerProcess::stderr_tail() const {
  const off_t size = ::lseek(error_log_.get(), 0, SEEK_CUR);
  std::string text(static_cast<std::size_t>(std::clamp<off_t>(size, 0, kStderrTailBytes)), '\0');
  const off_t from = size > kStderrTailBytes ? size - kStderrTailBytes : 0;
  const ssize_t got = ::pread(error_log_.get(), text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text.empty() ? text : "; stderr: " + text;
}

Result<std::string> find_worker(const std::string& configured) {
  std::string path = configured;
  if (!configured.empty()) {
    if (configured.front() != '/') {
      return make_error(ErrorCode::not_found, "the setting worker is {}; expected an absolute path",
                        configured);
    }
    if (::access(configured.c_str(), X_OK) != 0) {
      return make_error(ErrorCode::not_found,
                        "the setting worker is {}, which is not an executable file", configured);
    }
  } else {
    CUKILN_TRY(const std::string library, path_of_this_library());
    const std::string folder = folder_of(library);
    const std::string installed = fmt::format("../libexec/cukiln/{}.{}", CUKILN_VERSION_MAJOR,
                                              CUKILN_VERSION_MINOR);  // CUKILN_ABI_VERSION
    std::string tried;
    for (const std::string& relative : {std::string(), installed, "../" + installed}) {
      std::string candidate = join_path(join_path(folder, relative), kWorkerName);
      if (::access(candidate.c_str(), X_OK) == 0) {
        path = std::move(candidate);
        break;
      }
      tried += "\n  " + candidate;
    }
    if (path.empty()) {
      return make_error(ErrorCode::not_found,
                        "the compile worker was not found; set worker to its path. Searched:{}",
                        tried);
    }
  }
  if (const auto program = open_trusted_file(path, kWorkerKind, O_PATH); !program) {
    return Error(ErrorCode::not_found, program.error().message());
  }
  return path;
}

}  // namespace cukiln
