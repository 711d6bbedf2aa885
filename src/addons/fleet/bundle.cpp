// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/bundle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "core/base/cache_format.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kBundleMagic = "CKB" CUKILN_CACHE_FORMAT;
constexpr std::size_t kHeadBytes = 12;
constexpr std::size_t kChunkBytes = 1 << 20;

std::string head_of(std::uint32_t entries, std::uint32_t blobs) {
  return SerialWriter().raw(kBundleMagic).u32(entries).u32(blobs).take();
}

}  // namespace

Result<BundleWriter> BundleWriter::create(const std::string& path) {
  const std::string target = replaceable_path(path);
  if (target.empty()) {
    return make_error(ErrorCode::io, "cannot write {}: a bundle goes to a regular file", path);
  }
  std::string part = fmt::format("{}.part-{}", target, ::getpid());
  FilePointer file(std::fopen(part.c_str(), "wbxe"));
  if (!file) {
    return make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
  }
  BundleWriter writer(target, std::move(part), std::move(file));
  CUKILN_CHECK(writer.write(head_of(0, 0)));
  return writer;
}

BundleWriter::~BundleWriter() {
  if (file_) {
    ::unlink(part_.c_str());
  }
}

Error BundleWriter::failed() const {
  return make_error(ErrorCode::io, "cannot write {}: {}", path_, errno_text(errno));
}

Result<void> BundleWriter::write(ByteView bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return failed();
  }
  bytes_ += bytes.size();
  return {};
}

Result<void> BundleWriter::add(ByteView envelope) {
  assert(parts_.blobs.count == 0);
  return add(parts_.entries, envelope);
}

Result<void> BundleWriter::add(BundlePart& part, ByteView envelope) {
  if (envelope.size() > part.max_bytes) {
    return make_error(ErrorCode::invalid_argument,
                      "{} {} has {} bytes; a bundle takes at most {} of one", part.name,
                      part.count + 1, envelope.size(), part.max_bytes);
  }
  CUKILN_CHECK(write(SerialWriter().u64(envelope.size()).view()));
  CUKILN_CHECK(write(envelope));
  ++part.count;
  return {};
}

Result<void> BundleWriter::finish() {
  const std::string head = head_of(parts_.entries.count, parts_.blobs.count);
  if (::fseeko(file_.get(), 0, SEEK_SET) != 0 ||
      std::fwrite(head.data(), 1, head.size(), file_.get()) != head.size() ||
      std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0 ||
      ::rename(part_.c_str(), path_.c_str()) != 0) {
    return failed();
  }
  file_.reset();
  return {};
}

Result<BundleReader> BundleReader::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    return make_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                      "cannot open the bundle {}: {}", path, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument,
                      "the bundle {} is a {}; expected a regular file, which can be read twice",
                      path, S_ISDIR(status.st_mode) ? "directory" : "device, FIFO or socket");
  }
  FilePointer file(::fdopen(fd.get(), "rb"));
  if (!file) {
    return make_error(ErrorCode::io, "cannot open the bundle {}: {}", path, errno_text(errno));
  }
  fd.release();
  BundleReader reader(path, std::move(file));
  std::string head;
  const auto read = reader.read(head, kHeadBytes, reader.parts_.entries);
  SerialReader in(head);
  const ByteView magic = in.raw(kBundleMagic.size());
  const bool known = magic == kBundleMagic;
  const std::size_t common = kBundleMagic.size() - 1;  // the last character is the format
  if (read && !known && magic.substr(0, common) == kBundleMagic.substr(0, common)) {
    return make_error(ErrorCode::corrupt,
                      "{} is a bundle of format {}, this cukiln reads format {}: export it again "
                      "with a cukiln of this version",
                      path, magic.back(), kBundleMagic.back());
  }
  if (!read || !known) {
    return make_error(ErrorCode::corrupt,
                      "{} is not a bundle: expected a file that begins with {}, as 'cukiln export' "
                      "writes it",
                      path, kBundleMagic);
  }
  reader.parts_.entries.count = in.u32();
  reader.parts_.blobs.count = in.u32();
  return reader;
}

/// Reads in chunks, so that a wrong length in the file does not allocate that much.
Result<void> BundleReader::read(std::string& bytes, std::size_t size, const BundlePart& part) {
  bytes.clear();
  while (bytes.size() < size) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min(size, before + kChunkBytes));
    const std::size_t got =
        std::fread(bytes.data() + before, 1, bytes.size() - before, file_.get());
    if (got != bytes.size() - before) {
      return make_error(std::ferror(file_.get()) != 0 ? ErrorCode::io : ErrorCode::corrupt,
                        "the bundle {} is truncated in its {} {} of {}", path_, part.name,
                        part.read + 1, part.count);
    }
  }
  return {};
}

Result<std::optional<std::string>> BundleReader::next() {
  BundlePart& part = is_at_blob() ? parts_.blobs : parts_.entries;
  if (part.read == part.count) {
    if (std::fgetc(file_.get()) != EOF) {
      return make_error(ErrorCode::corrupt,
                        "the bundle {} has bytes after its {} entries and {} blobs", path_, count(),
                        blobs());
    }
    return std::optional<std::string>();
  }
  std::string envelope;
  CUKILN_CHECK(read(envelope, sizeof(std::uint64_t), part));
  const std::uint64_t size = SerialReader(envelope).u64();
  if (size > part.max_bytes) {
    return make_error(ErrorCode::corrupt, "{} {} of the bundle {} claims {} bytes; the limit is {}",
                      part.name, part.read + 1, path_, size, part.max_bytes);
  }
  CUKILN_CHECK(read(envelope, static_cast<std::size_t>(size), part));
  ++part.read;
  return std::optional(std::move(envelope));
}

std::string BundleReader::position() const {
  const BundlePart& part = parts_.blobs.read != 0 ? parts_.blobs : parts_.entries;
  return fmt::format("{} {} of {}", part.name, part.read, part.count);
}

}  // namespace cukiln
