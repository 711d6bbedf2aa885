// SPDX-License-Identifier: Apache-2.0
#include "core/compile/toolchain_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "core/base/clock.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kMaxLibraryBytes = 2ull << 30;
constexpr std::chrono::seconds kProbeTimeout{60};
// The note of the library's stat record: `NVRTC 13.0.88[ unobserved] head=<digest> targets=75,80,`.
constexpr std::string_view kUnobserved = " unobserved";
constexpr std::string_view kHead = " head=";
constexpr std::string_view kTargets = " targets=";
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

Result<wire::Probed> receive_probe(WorkerProcess& worker, const ToolIdentity& identity,
                                   const wire::WaitOptions& wait) {
  const NvrtcInstall& install = identity.install;
  const WorkerReply reply = worker.receive(wait);
  auto probed =
      reply.is(wire::WorkerOp::probed) ? wire::Probed::decode(reply.frame.body) : std::nullopt;
  if (!probed) {
    return make_error(ErrorCode::internal, "{} ({}) crashed in a probe of five lines{}",
                      name_of(identity.tool), install.library, worker.stderr_tail());
  }
  if (!probed->version.empty()) {
    return *std::move(probed);
  }
  if (identity.tool == Tool::nvjitlink) {
    return make_error(
        ErrorCode::incompatible,
        "nvJitLink ({}) cannot link for sm_90: {}; install nvidia-nvjitlink of NVRTC's version",
        install.library, probed->error);
  }
  return Error(
      ErrorCode::incompatible,
      fmt::format("NVRTC {}.{} ({}) cannot compile a probe of five lines with the builtins "
                  "library {}. The two must be from one version of CUDA",
                  worker.hello().nvrtc_major, worker.hello().nvrtc_minor, install.library,
                  install.builtins.empty() ? "that ld.so found" : install.builtins),
      probed->error);
}

std::string note_of(const ToolIdentity& identity, const std::vector<std::uint32_t>& capabilities) {
  return fmt::format("{} {}{}{}{}{}{}", name_of(identity.tool), identity.toolchain.version,
                     identity.observed ? "" : kUnobserved, kHead,
                     head_digest(identity.install.library), kTargets,
                     capabilities_text(capabilities));
}

ContentHash content_of(const ToolIdentity& identity, const LibraryDigests& digests) {
  return identity.tool == Tool::nvrtc
             ? hash_of({view_of(digests.library), view_of(digests.builtins)})
             : digests.library;
}

}  // namespace

const char* name_of(Tool tool) noexcept { return tool == Tool::nvrtc ? "NVRTC" : "nvJitLink"; }

Result<LibraryStamps> stamps_of(const NvrtcInstall& install) {
  LibraryStamps stamps;
  CUKILN_TRY(stamps.library, stamp_at(install.library));
  if (!install.builtins.empty()) {
    CUKILN_TRY(stamps.builtins, stamp_at(install.builtins));
  }
  return stamps;
}

bool recall_tool(StatCache* stats, ToolIdentity& identity) {
  if (stats == nullptr) {
    return false;
  }
  const NvrtcInstall& install = identity.install;
  const auto library = stats->find_on_any_file_system(install.library, identity.stamps.library);
  const std::string prefix = fmt::format("{} ", name_of(identity.tool));
  if (!library || !library->note.starts_with(prefix)) {
    return false;
  }
  LibraryDigests digests{library->digest, {}};
  if (!install.builtins.empty()) {
    const auto known = stats->find_on_any_file_system(install.builtins, identity.stamps.builtins);
    if (!known) {
      return false;
    }
    digests.builtins = known->digest;
  }
  std::string version = library->note.substr(prefix.size());
  const std::size_t head = version.find(kHead);
  const std::size_t targets = version.find(kTargets);
  if (head > targets || targets == std::string::npos) {
    return false;
  }
  const std::string known_head = version.substr(head + kHead.size(), targets - head - kHead.size());
  if (!stats->trusts_stamps(install.library) && known_head != head_digest(install.library)) {
    return false;
  }
  const auto capabilities =
      parse_capabilities(std::string_view(version).substr(targets + kTargets.size()));
  version.resize(head);
  const std::size_t unobserved = version.find(kUnobserved);
  identity.observed = unobserved == std::string::npos;
  version.resize(std::min(unobserved, version.size()));
  identity.targets = targets_of_nvrtc(capabilities, version);
  identity.toolchain = {std::move(version), content_of(identity, digests)};
  return true;
}

Result<std::vector<std::unique_ptr<WorkerProcess>>> probe_tool(const WorkerOptions& options,
                                                               std::size_t count, StatCache* stats,
                                                               ToolIdentity& identity) {
  const NvrtcInstall& install = identity.install;
  const LibraryStamps& stamps = identity.stamps;
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
  CUKILN_TRY(const wire::Probed probed, receive_probe(*workers.front(), identity, wait));
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (workers[i] != nullptr && !receive_probe(*workers[i], identity, wait)) {
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
  identity.toolchain = {probed.version, content_of(identity, *digests)};
  if (stats != nullptr) {
    stats->put({install.library, stamps.library, digests->library,
                note_of(identity, probed.capabilities), now});
    if (!install.builtins.empty()) {
      stats->put({install.builtins, stamps.builtins, digests->builtins, {}, now});
    }
  }
  return workers;
}

}  // namespace cukiln
