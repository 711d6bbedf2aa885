// SPDX-License-Identifier: Apache-2.0
#include "compile/toolchain_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kMaxLibraryBytes = 2ull << 30;
constexpr std::chrono::seconds kProbeTimeout{60};
// The note of the library's stat record: `13.0.88[ unobserved] head=<digest> targets=75,80,`. An
// older cukiln, which writes no targets, reads it as well where stamps are reliable.
constexpr std::string_view kUnobserved = " unobserved";
constexpr std::string_view kHead = " head=";
constexpr std::string_view kTargets = " targets=";
constexpr std::string_view kLinker =
    "linker ";  // of nvJitLink: `linker 13.0[ unobserved] head=<digest>`
constexpr std::size_t kHeadBytes = 64 << 10;

Result<FileStamp> stamp_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return make_error(ErrorCode::not_found, "cannot stat {}: {}", path, errno_text(errno));
  }
  return stamp_of(status);
}

Error being_replaced(const std::string& path) {
  return make_error(ErrorCode::incompatible, "{} changed while it was read; try again", path);
}

ContentHash combined(const ContentHash& library, const ContentHash& builtins) {
  return hash_of({view_of(library), view_of(builtins)});
}

/// Returns the digest of the library's first 64 KiB, which contain its build id; empty if it cannot
/// be read. Where stamps are not reliable (a read-only image, a network file system), a library is
/// recognised by its stamp and this digest: hashing all of it would take longer than the rest of
/// the start.
std::string head_digest(const std::string& library) {
  std::string head(kHeadBytes, '\0');
  const UniqueFd fd(::open(library.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = fd ? ::pread(fd.get(), head.data(), head.size(), 0) : -1;
  return got == static_cast<ssize_t>(head.size()) ? hash_of(head).hex() : std::string();
}

Result<ContentHash> hash_library(const std::string& path, const FileStamp& expected) {
  CUKILN_TRY(const HashedFile hashed, hash_file(path, kMaxLibraryBytes));
  if (hashed.stamp != expected) {
    return being_replaced(path);
  }
  return hashed.digest;
}

std::string capabilities_text(const std::vector<std::uint32_t>& capabilities) {
  std::string text;
  for (const std::uint32_t capability : capabilities) {
    text += std::to_string(capability) + ",";
  }
  return text;
}

std::vector<std::uint32_t> parse_capabilities(std::string_view text) {
  std::vector<std::uint32_t> capabilities;
  while (!text.empty()) {
    std::uint32_t capability = 0;
    std::from_chars(text.data(), text.data() + text.size(), capability);
    capabilities.push_back(capability);
    text.remove_prefix(std::min(text.find(','), text.size() - 1) + 1);
  }
  return capabilities;
}

struct LibraryDigests {
  ContentHash library;
  ContentHash builtins;
};

Result<LibraryDigests> hash_libraries(const NvrtcInstall& install, const LibraryStamps& stamps) {
  LibraryDigests digests;
  CUKILN_TRY(digests.library, hash_library(install.library, stamps.library));
  if (!install.builtins.empty()) {
    CUKILN_TRY(digests.builtins, hash_library(install.builtins, stamps.builtins));
  }
  return digests;
}

Result<wire::Probed> receive_probe(WorkerProcess& worker, const NvrtcInstall& install,
                                   const wire::WaitOptions& wait) {
  const WorkerReply reply = worker.receive(wait);
  auto probed =
      reply.is(wire::WorkerOp::probed) ? wire::Probed::decode(reply.frame.body) : std::nullopt;
  if (!probed) {
    return make_error(ErrorCode::internal,
                      "NVRTC ({}) crashed while it compiled a probe of five lines{}",
                      install.library, worker.stderr_tail());
  }
  if (probed->version.empty()) {
    return Error(
        ErrorCode::incompatible,
        fmt::format("NVRTC {}.{} ({}) cannot compile a probe of five lines with the builtins "
                    "library {}. The two must be from one version of CUDA",
                    worker.hello().nvrtc_major, worker.hello().nvrtc_minor, install.library,
                    install.builtins.empty() ? "that ld.so found" : install.builtins),
        probed->error);
  }
  return *std::move(probed);
}

}  // namespace

Result<LibraryStamps> stamps_of(const NvrtcInstall& install) {
  LibraryStamps stamps;
  CUKILN_TRY(stamps.library, stamp_at(install.library));
  if (!install.builtins.empty()) {
    CUKILN_TRY(stamps.builtins, stamp_at(install.builtins));
  }
  return stamps;
}

bool recall_toolchain(StatCache* stats, const LibraryStamps& stamps, NvrtcIdentity& identity) {
  if (stats == nullptr) {
    return false;
  }
  const auto library = stats->find_on_any_file_system(identity.install.library, stamps.library);
  if (!library || library->note.empty()) {
    return false;
  }
  ContentHash builtins;
  if (!identity.install.builtins.empty()) {
    const auto known = stats->find_on_any_file_system(identity.install.builtins, stamps.builtins);
    if (!known) {
      return false;
    }
    builtins = known->digest;
  }
  std::string version = library->note;
  const std::size_t targets = version.find(kTargets);
  if (targets == std::string::npos) {
    return false;
  }
  const auto capabilities =
      parse_capabilities(std::string_view(version).substr(targets + kTargets.size()));
  version.resize(targets);
  const std::size_t head = version.find(kHead);
  if (!stats->trusts_stamps(identity.install.library) &&
      (head == std::string::npos ||
       version.substr(head + kHead.size()) != head_digest(identity.install.library))) {
    return false;
  }
  version.resize(std::min(head, version.size()));
  identity.observed = true;
  if (const std::size_t at = version.find(kUnobserved); at != std::string::npos) {
    version.resize(at);
    identity.observed = false;
  }
  identity.targets = targets_of_nvrtc(capabilities, version);
  identity.toolchain = {std::move(version), combined(library->digest, builtins)};
  return true;
}

Result<std::vector<std::unique_ptr<WorkerProcess>>> probe_toolchain(const WorkerOptions& options,
                                                                    std::size_t count,
                                                                    StatCache* stats,
                                                                    const LibraryStamps& stamps,
                                                                    NvrtcIdentity& identity) {
  const NvrtcInstall& install = identity.install;
  // Read before the files are opened, as in FileServer::serve.
  const std::int64_t now = Clock::system().now_ns();
  const wire::WaitOptions wait{std::chrono::steady_clock::now() + kProbeTimeout};
  // Not std::async: its exceptions pass through libc, whose unwinder may allocate.
  Result<LibraryDigests> digests = Error::out_of_memory();
  const auto hash = [&] { digests = guarded([&] { return hash_libraries(install, stamps); }); };
  std::jthread hashing;
  try {
    hashing = std::jthread(hash);
  } catch (const std::exception&) {  // no thread, or no memory for one
    hash();
  }

  std::vector<std::unique_ptr<WorkerProcess>> workers;
  while (workers.size() < count) {
    auto worker = WorkerProcess::launch(options);
    if (!worker && workers.empty()) {
      return std::move(worker).error();
    }
    if (!worker) {
      break;
    }
    workers.push_back(*std::move(worker));
  }
  CUKILN_CHECK(workers.front()->await_hello(wait));
  workers.front()->send(wire::WorkerOp::probe, {}, wait);
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (!workers[i]->await_hello(wait)) {
      workers[i].reset();  // a compile that needs it starts another and reports what is wrong
    } else {
      workers[i]->send(wire::WorkerOp::probe, {}, wait);
    }
  }
  CUKILN_TRY(const wire::Probed probed, receive_probe(*workers.front(), install, wait));
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (workers[i] != nullptr && !receive_probe(*workers[i], install, wait)) {
      workers[i].reset();
    }
  }
  if (hashing.joinable()) {
    hashing.join();
  }
  CUKILN_CHECK(digests);
  // The files that the workers opened must be those that were hashed.
  if (auto stamped = stamps_of(install); !stamped || *stamped != stamps) {
    return being_replaced(install.library);
  }

  identity.observed = probed.observed;
  identity.targets = targets_of_nvrtc(probed.capabilities, probed.version);
  identity.toolchain = {probed.version, combined(digests->library, digests->builtins)};
  if (stats != nullptr) {
    std::string note = probed.version + std::string(probed.observed ? "" : kUnobserved) +
                       std::string(kHead) + head_digest(install.library) + std::string(kTargets) +
                       capabilities_text(probed.capabilities);
    stats->put({install.library, stamps.library, digests->library, std::move(note), now});
    if (!install.builtins.empty()) {
      stats->put({install.builtins, stamps.builtins, digests->builtins, {}, now});
    }
  }
  return workers;
}

Result<FileStamp> stamp_of_linker(const std::string& library) { return stamp_at(library); }

bool recall_linker(StatCache* stats, LinkerIdentity& identity) {
  const auto known = stats != nullptr
                         ? stats->find_on_any_file_system(identity.library, identity.stamp)
                         : std::nullopt;
  if (!known || !known->note.starts_with(kLinker)) {
    return false;
  }
  std::string version = known->note.substr(kLinker.size());
  const std::size_t head = version.find(kHead);
  if (head == std::string::npos ||
      (!stats->trusts_stamps(identity.library) &&
       version.substr(head + kHead.size()) != head_digest(identity.library))) {
    return false;
  }
  version.resize(head);
  const std::size_t unobserved = version.find(kUnobserved);
  identity.observed = unobserved == std::string::npos;
  version.resize(std::min(unobserved, version.size()));
  identity.toolchain = {std::move(version), known->digest};
  return true;
}

Result<std::unique_ptr<WorkerProcess>> probe_linker_toolchain(const WorkerOptions& options,
                                                              StatCache* stats,
                                                              LinkerIdentity& identity) {
  const std::int64_t now = Clock::system().now_ns();  // before the file is opened
  const wire::WaitOptions wait{std::chrono::steady_clock::now() + kProbeTimeout};
  CUKILN_TRY(auto worker, WorkerProcess::launch(options));
  CUKILN_TRY(const ContentHash digest, hash_library(identity.library, identity.stamp));
  CUKILN_CHECK(worker->await_hello(wait));
  const WorkerReply reply = worker->request(wire::WorkerOp::probe, {}, wait);
  const auto probed =
      reply.is(wire::WorkerOp::probed) ? wire::Probed::decode(reply.frame.body) : std::nullopt;
  if (!probed) {
    return make_error(ErrorCode::internal, "nvJitLink ({}) crashed in a probe of four lines{}",
                      identity.library, worker->stderr_tail());
  }
  if (probed->version.empty()) {
    return make_error(
        ErrorCode::incompatible,
        "nvJitLink ({}) cannot link for sm_90: {}; install nvidia-nvjitlink of NVRTC's "
        "version",
        identity.library, probed->error);
  }
  if (const auto stamped = stamp_at(identity.library); !stamped || *stamped != identity.stamp) {
    return being_replaced(identity.library);
  }
  identity.observed = probed->observed;
  identity.toolchain = {probed->version, digest};
  if (stats != nullptr) {
    std::string note = std::string(kLinker) + probed->version +
                       std::string(probed->observed ? "" : kUnobserved) + std::string(kHead) +
                       head_digest(identity.library);
    stats->put({identity.library, identity.stamp, digest, std::move(note), now});
  }
  return worker;
}

}  // namespace cukiln
