// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;

/// Writes a bundle: a file of envelopes, for container images and machines without a network. See
/// cache/FORMAT.md, "Bundle". The file appears under its name when `finish` succeeds.
class BundleWriter {
 public:
  /// Errors: io.
  static Result<BundleWriter> create(const std::string& path);
  BundleWriter(BundleWriter&&) noexcept = default;
  ~BundleWriter();
  Result<void> add(ByteView envelope);
  /// Errors: io, such as a full disk; no file is left behind then.
  Result<void> finish();
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  BundleWriter(std::string path, std::string part, FilePointer file)
      : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)) {}
  Error failed() const;
  Result<void> write(ByteView bytes);

  std::string path_;
  std::string part_;
  FilePointer file_;
  std::uint32_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Reads a bundle's envelopes in order.
class BundleReader {
 public:
  /// Errors: not_found, io; invalid_argument (not a regular file); corrupt (not a bundle, or one of
  /// another version).
  static Result<BundleReader> open(const std::string& path);
  std::uint32_t count() const noexcept { return count_; }
  /// Reads the next envelope; nothing after the last. Errors: io; corrupt (truncated, too large).
  Result<std::optional<std::string>> next();

 private:
  BundleReader(std::string path, FilePointer file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> read(std::string& bytes, std::size_t size);

  std::string path_;
  FilePointer file_;
  std::uint32_t count_ = 0;
  std::uint32_t entries_read_ = 0;
};

}  // namespace cukiln
