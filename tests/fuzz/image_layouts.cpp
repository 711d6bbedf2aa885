// SPDX-License-Identifier: Apache-2.0
// libFuzzer: reads an OCI image layout as `cukiln import` does. Built by scripts/fuzz.
//
// The first byte says which document the rest is: the index, the manifest, the configuration or the
// unpacked layer. The target makes the other ones around it, with the digests that it takes. Rule:
// a layout is read to its end or refused with a reason, and without a signature of a trusted key
// nothing of it is accepted.

#include <sys/stat.h>
#include <zstd.h>

#include <cstdint>
#include <string>

#include "addons/fleet/oci_blob.hpp"
#include "addons/fleet/oci_layout.hpp"
#include "core/base/file.hpp"
#include "fuzz/require.hpp"
#include "support/scratch.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

class Layout {
 public:
  Layout() {
    ::mkdir((folder_ / "image").c_str(), 0700);
    ::mkdir((folder_ / "image/blobs").c_str(), 0700);
    ::mkdir((folder_ / "image/blobs/sha256").c_str(), 0700);
    folder_.write("image/oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
  }

  void write_index(const std::string& text) const { folder_.write("image/index.json", text); }

  void write_image(const std::string& manifest) const {
    write_index(OciJson{{"manifests", {write_blob(kOciManifestType, manifest)}}}.dump());
  }

  void write_config(const std::string& config, const std::string& archive) const {
    std::string packed(ZSTD_compressBound(archive.size()), '\0');
    packed.resize(
        ZSTD_compress(packed.data(), packed.size(), archive.data(), archive.size(), /*level=*/1));
    write_image(OciJson{{"config", write_blob(kOciConfigType, config)},
                        {"layers", {write_blob(kOciLayerType, packed)}}}
                    .dump());
  }

  void write_layer(const std::string& archive) const {
    Sha256 digest;
    digest.add(archive);
    write_config(OciJson{{"rootfs", {{"diff_ids", {digest.finish()}}}}}.dump(), archive);
  }

  /// Whether the layout is accepted.
  bool read(const OpenRules& rules) const {
    Rejection why = Rejection::none;
    const auto read = for_each_of_oci_layout(
        folder_ / "image", folder_.path(), rules, why,
        [](const StoreEntry&) { return Result<void>(); },
        [](const StoreBlob&) { return Result<void>(); });
    require(read || !read.error().message().empty(), "what is refused has a reason");
    return read.has_value();
  }

 private:
  OciJson write_blob(const char* type, const std::string& bytes) const {
    Sha256 digest;
    digest.add(bytes);
    const OciDescriptor blob{type, digest.finish(), bytes.size()};
    folder_.write(oci_blob_path("image", blob.digest), bytes);
    return blob.json();
  }

  testing::ScratchFolder folder_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Layout layout;
  switch (data[0] % 4) {
    case 0: layout.write_index(text); break;
    case 1: layout.write_image(text); break;
    case 2: layout.write_config(text, "archive"); break;
    default: layout.write_layer(text); break;
  }
  const TrustedKeys none;
  require(!layout.read({&none, nullptr, false}), "an image of no trusted key is refused");
  layout.read({nullptr, nullptr, true});
  return 0;
}
