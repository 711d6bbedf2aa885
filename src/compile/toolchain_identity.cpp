#include "compile/toolchain_identity.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "base/clock.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "base/serial.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kMaxLibraryBytes = 2ull << 30;
constexpr std::chrono::seconds kProbePatience{60};
constexpr std::string_view kUnobserved = " unobserved";

Result<FileStamp> stamp_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return make_error(ErrorCode::not_found, "{} is gone: {}", path, errno_text(errno));
  }
  return stamp_of(status);
}

Digest128 combined(const Digest128& library, const Digest128& builtins) {
  SerialWriter both;
  for (const Digest128& part : {library, builtins}) {
    both.raw(view_of(part));
  }
  return digest_of(both.view());
}

Result<Digest128> hash_library(const std::string& path, const FileStamp& expected) {
  CUKILN_TRY(const FileContent content, read_file(path, kMaxLibraryBytes));
  if (content.stamp != expected) {
    return make_error(ErrorCode::incompatible, "{} is being replaced; try again", path);
  }
  return digest_of(content.bytes);
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

bool recall_identity(StatCache* stats, const LibraryStamps& stamps, NvrtcIdentity& identity) {
  if (stats == nullptr) {
    return false;
  }
  const auto library = stats->find(identity.install.library, stamps.library);
  if (!library || library->note.empty()) {
    return false;
  }
  Digest128 builtins;
  if (!identity.install.builtins.empty()) {
    const auto known = stats->find(identity.install.builtins, stamps.builtins);
    if (!known) {
      return false;
    }
    builtins = known->digest;
  }
  std::string version = library->note;
  identity.observed = true;
  if (const std::size_t at = version.find(kUnobserved); at != std::string::npos) {
    version.resize(at);
    identity.observed = false;
  }
  identity.toolchain = {std::move(version), combined(library->digest, builtins)};
  return true;
}

Result<void> measure_identity(WorkerProcess& worker, StatCache* stats, const LibraryStamps& stamps,
                              NvrtcIdentity& identity) {
  const NvrtcInstall& install = identity.install;
  const wire::Patience patience{std::chrono::steady_clock::now() + kProbePatience};
  worker.send(wire::WorkerOp::probe, {}, patience);
  CUKILN_TRY(const Digest128 library, hash_library(install.library, stamps.library));
  Digest128 builtins;
  if (!install.builtins.empty()) {
    CUKILN_TRY(builtins, hash_library(install.builtins, stamps.builtins));
  }
  const WorkerReply reply = worker.receive(patience);
  const auto probed =
      reply.is(wire::WorkerOp::probed) ? wire::Probed::decode(reply.frame.body) : std::nullopt;
  if (!probed) {
    return make_error(ErrorCode::internal, "NVRTC ({}) did not survive a compile of five lines{}",
                      install.library, worker.last_words());
  }
  if (probed->version.empty()) {
    return Error(
        ErrorCode::incompatible,
        fmt::format("NVRTC {}.{} ({}) cannot compile five lines with the builtins library "
                    "{}. The two must be from one version of CUDA",
                    worker.hello().nvrtc_major, worker.hello().nvrtc_minor, install.library,
                    install.builtins.empty() ? "that ld.so found" : install.builtins),
        probed->error);
  }
  identity.observed = probed->observed;
  identity.toolchain = {probed->version, combined(library, builtins)};
  if (stats != nullptr) {
    const std::int64_t now = Clock::system().now_ns();
    std::string note = probed->version + std::string(probed->observed ? "" : kUnobserved);
    stats->put({install.library, stamps.library, library, std::move(note), now});
    if (!install.builtins.empty()) {
      stats->put({install.builtins, stamps.builtins, builtins, {}, now});
    }
  }
  return {};
}

}  // namespace cukiln
