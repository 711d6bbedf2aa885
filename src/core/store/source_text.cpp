// SPDX-License-Identifier: Apache-2.0
#include "core/store/source_text.hpp"

#include <zstd.h>

#include <cstring>
#include <memory>
#include <new>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

namespace {

constexpr int kCompressionLevel = 3;
constexpr std::uint64_t kMaxTextBytes = 4 * kMaxSourceBytes;

}  // namespace

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
