// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sodium.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln {

// What the writer and the reader of an image layout share: the types of its documents, and blobs,
// which are named by their digests.

using OciJson = nlohmann::ordered_json;

inline constexpr const char* kOciManifestType = "application/vnd.oci.image.manifest.v1+json";
inline constexpr const char* kOciConfigType = "application/vnd.oci.image.config.v1+json";
inline constexpr const char* kOciLayerType = "application/vnd.oci.image.layer.v1.tar+zstd";
/// The manifest's annotation with the signature, which every copy of the image keeps. Copies leave
/// out a second manifest that refers to the image.
inline constexpr const char* kOciSignature = "cukiln.signature";
inline constexpr std::string_view kOciDigestKind = "sha256:";
inline constexpr std::size_t kOciCopyBytes = 1 << 20;

/// SHA-256, by which OCI names blobs.
class Sha256 {
 public:
  Sha256() noexcept { ::crypto_hash_sha256_init(&state_); }
  void add(ByteView bytes) noexcept {
    ::crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()),
                                bytes.size());
  }
  std::string finish() noexcept {
    unsigned char digest[crypto_hash_sha256_BYTES];
    ::crypto_hash_sha256_final(&state_, digest);
    char hex[2 * sizeof digest + 1];
    ::sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    return std::string(kOciDigestKind) + hex;
  }

 private:
  crypto_hash_sha256_state state_;
};

/// What a document says of a blob.
struct OciDescriptor {
  std::string type, digest;
  std::uint64_t bytes = 0;
  OciJson json() const { return {{"mediaType", type}, {"digest", digest}, {"size", bytes}}; }
};

inline bool is_oci_digest(std::string_view text) noexcept {
  return text.size() == kOciDigestKind.size() + 64 && text.starts_with(kOciDigestKind) &&
         text.find_first_not_of("0123456789abcdef", kOciDigestKind.size()) ==
             std::string_view::npos;
}

inline std::string oci_blob_path(const std::string& layout, const std::string& digest) {
  return layout + "/blobs/sha256/" + digest.substr(kOciDigestKind.size());
}

inline Result<void> write_oci_bytes(const UniqueFd& file, ByteView bytes, const std::string& path) {
  return write_all(file.get(), bytes) ? Result<void>() : cannot("write", path);
}

}  // namespace cukiln
