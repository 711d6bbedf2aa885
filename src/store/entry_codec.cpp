// SPDX-License-Identifier: Apache-2.0
#include "store/entry_codec.hpp"

#include <zstd.h>

#include <cstring>
#include <memory>
#include <new>

#include "base/file.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "base/serial.hpp"

namespace cukiln {

namespace {

constexpr int kCompressionLevel = 3;
constexpr std::uint64_t kMaxTextBytes = 4 * kMaxSourceBytes;
constexpr std::uint64_t kRowOverhead = 1024;

}  // namespace

Result<StoreEntry> decode_entry(const CacheKey& key, EntryParts parts, SharedBytes image) {
  return decode_entry(key, CompileRequest::digest_of(parts.request_canonical),
                      output_of_request(parts.request_canonical), parts, std::move(image));
}

Result<StoreEntry> decode_entry(const CacheKey& key, const RequestDigest& request, OutputKind kind,
                                EntryParts parts, SharedBytes image) {
  parts.image = image;
  StoreEntry entry;
  entry.request = request;
  if (cache_key_of(request, parts.dependencies) != key) {
    return make_error(ErrorCode::corrupt,
                      "the request and the dependency set of the entry {} do not hash to its key",
                      key.hex());
  }
  CUKILN_TRY(entry.dependencies, DependencySet::parse(parts.dependencies));
  CUKILN_TRY(entry.cubin.kernels, decode_kernels(parts.kernels));
  entry.labels = {std::string(parts.name), std::string(parts.source), std::string(parts.target),
                  std::string(parts.flags), std::string(parts.compiler)};
  CUKILN_TRY(const Target target, Target::parse(parts.target));
  CUKILN_CHECK(check_output(parts.image, target, kind));
  entry.key = key;
  entry.request_canonical = parts.request_canonical;
  entry.cubin.image = std::move(image);
  entry.cubin.log = parts.log;
  entry.origin = static_cast<Origin>(parts.origin);
  entry.signer = parts.signer;
  return entry;
}

EncodedEntry::EncodedEntry(const StoreEntry& entry)
    : dependencies(entry.dependencies.canonical()), kernels(encode_kernels(entry.cubin.kernels)) {
  const auto& [name, source, target, flags, compiler] = entry.labels;
  parts = {entry.request_canonical,
           dependencies,
           entry.cubin.image,
           kernels,
           entry.cubin.log,
           name,
           source,
           target,
           flags,
           compiler,
           entry.signer,
           static_cast<std::int64_t>(entry.origin)};
}

std::uint64_t EncodedEntry::bytes() const noexcept {
  return parts.request_canonical.size() + parts.dependencies.size() + parts.image.size() +
         parts.kernels.size() + parts.log.size() + parts.flags.size() + kRowOverhead;
}

Result<void> check_consistent(const StoreEntry& entry, const EncodedEntry& encoded) {
  const RequestDigest request = CompileRequest::digest_of(entry.request_canonical);
  const CacheKey expected = cache_key_of(request, encoded.dependencies);
  if (entry.key != expected || entry.request != request) {
    return make_error(ErrorCode::invalid_argument,
                      "the entry's key is {}, but its request and dependencies hash to {}",
                      entry.key.hex(), expected.hex());
  }
  CUKILN_TRY(const Target target, Target::parse(entry.labels.target));
  const OutputKind kind = output_of_request(entry.request_canonical);
  if (auto image = check_output(entry.cubin.image, target, kind); !image) {
    return make_error(ErrorCode::invalid_argument, "the entry {} cannot be stored: {}",
                      entry.key.hex(), image.error().message());
  }
  return {};
}

std::string compress(ByteView text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  if (context == nullptr) {
    throw std::bad_alloc();
  }
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const std::size_t size =
      ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  out.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return out;
}

namespace {

Result<void> decompress(ZSTD_DCtx* context, ByteView bytes, std::string& out) {
  out.clear();
  if (bytes.empty()) {
    return {};
  }
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxTextBytes) {
    return Error(ErrorCode::corrupt, "the stored source text is damaged");
  }
  out.resize(static_cast<std::size_t>(size));
  if (ZSTD_decompressDCtx(context, out.data(), out.size(), bytes.data(), bytes.size()) != size) {
    return Error(ErrorCode::corrupt, "the stored source text is damaged");
  }
  return {};
}

}  // namespace

std::optional<ContentHash> only_source_of(const RequestDigest& request,
                                          ByteView request_canonical) {
  if (CompileRequest::digest_of(request_canonical) != request) {
    return std::nullopt;
  }
  const auto fields = RequestFields::parse(request_canonical);
  return fields && fields->sources.size() == 1 ? std::optional(fields->sources.front().digest)
                                               : std::nullopt;
}

SourceTextDecoder::SourceTextDecoder() noexcept : context_(ZSTD_createDCtx()) {}
SourceTextDecoder::~SourceTextDecoder() { ZSTD_freeDCtx(static_cast<ZSTD_DCtx*>(context_)); }

Result<ByteView> SourceTextDecoder::decode(ByteView bytes,
                                           const std::optional<ContentHash>& digest) {
  if (context_ == nullptr) {
    throw std::bad_alloc();
  }
  CUKILN_CHECK(decompress(static_cast<ZSTD_DCtx*>(context_), bytes, text_));
  if (digest && !text_.empty() && hash_of(text_) != *digest) {
    return Error(ErrorCode::corrupt, "the stored source text is not the one of the request");
  }
  return ByteView(text_);
}

}  // namespace cukiln
