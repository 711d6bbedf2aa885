// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "addons/fleet/envelope.hpp"
#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;

/// The envelopes of one kind in a bundle.
struct BundlePart {
  const char* name;  ///< for messages
  std::uint64_t max_bytes;
  std::uint32_t count = 0;  ///< in the whole bundle; of a writer, until now
  std::uint32_t read = 0;
};

/// A bundle has entries, then blobs.
struct BundleParts {
  BundlePart entries{"entry", kMaxEnvelopeBytes};
  BundlePart blobs{"blob", kMaxSealedBlobBytes};
};

/// Writes a bundle: a file of envelopes, for container images and machines without a network. See
/// cache/FORMAT.md, "Bundle". The file appears under its name when `finish` succeeds.
class BundleWriter {
 public:
  /// Errors: io.
  static Result<BundleWriter> create(const std::string& path);
  BundleWriter(BundleWriter&&) noexcept = default;
  ~BundleWriter();
  /// Adds an entry. No blob may have been added. Errors: invalid_argument (too large), io.
  Result<void> add(ByteView envelope);
  /// Adds a blob. Errors: as `add`.
  Result<void> add_blob(ByteView envelope) { return add(parts_.blobs, envelope); }
  /// Errors: io, such as a full disk; no file is left behind then.
  Result<void> finish();
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  BundleWriter(std::string path, std::string part, FilePointer file)
      : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)) {}
  Error failed() const;
  Result<void> write(ByteView bytes);
  Result<void> add(BundlePart& part, ByteView envelope);

  std::string path_;
  std::string part_;
  FilePointer file_;
  BundleParts parts_;
  std::uint64_t bytes_ = 0;
};

/// Reads a bundle's envelopes in order, first those of entries, then those of blobs.
class BundleReader {
 public:
  /// Errors: not_found, io; invalid_argument (not a regular file); corrupt (not a bundle, or one of
  /// another format).
  static Result<BundleReader> open(const std::string& path);
  /// The number of entries.
  std::uint32_t count() const noexcept { return parts_.entries.count; }
  /// The number of blobs.
  std::uint32_t blobs() const noexcept { return parts_.blobs.count; }
  /// True if `next` reads a blob.
  bool is_at_blob() const noexcept {
    return parts_.entries.read == count() && parts_.blobs.read < blobs();
  }
  /// Reads the next envelope; nothing after the last. Errors: io; corrupt (truncated, too large).
  Result<std::optional<std::string>> next();
  /// What `next` has read, as `blob 2 of 3`.
  std::string position() const;

 private:
  BundleReader(std::string path, FilePointer file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> read(std::string& bytes, std::size_t size, const BundlePart& part);

  std::string path_;
  FilePointer file_;
  BundleParts parts_;
};

}  // namespace cukiln
