// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>
#include <set>

#include <fmt/ranges.h>

#include "addons/fleet/base64.hpp"
#include "addons/fleet/oci_blob.hpp"
#include "addons/fleet/oci_layout.hpp"
#include "addons/fleet/tar.hpp"
#include "core/store/object_name.hpp"

namespace cukiln {

namespace {

namespace fs = std::filesystem;

constexpr const char* kImageName = "kernels";
constexpr int kLevel = 9;
#if defined(__aarch64__)
constexpr const char* kArchitecture = "arm64";
#else
constexpr const char* kArchitecture = "amd64";
#endif

/// Writes a file beside its name, then renames it.
class PartFile {
 public:
  static Result<PartFile> create(const std::string& folder) {
    std::string path = fmt::format("{}/part-{}", folder, ::getpid());
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    return file ? Result<PartFile>(PartFile(std::move(path), std::move(file)))
                : cannot("write", path);
  }
  PartFile(PartFile&&) noexcept = default;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile() {
    if (file_) {
      ::unlink(path_.c_str());
    }
  }
  Result<void> add(ByteView bytes) const { return write_oci_bytes(file_, bytes, path_); }
  Result<void> finish(const std::string& name) {
    if (::fsync(file_.get()) != 0 || ::rename(path_.c_str(), name.c_str()) != 0) {
      return cannot("write", name);
    }
    file_.reset();
    return {};
  }

 private:
  PartFile(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  UniqueFd file_;
};

Result<OciDescriptor> write_blob(const std::string& layout, const char* type, ByteView bytes) {
  Sha256 hasher;
  hasher.add(bytes);
  OciDescriptor blob{type, hasher.finish(), bytes.size()};
  CUKILN_TRY(PartFile part, PartFile::create(layout + "/blobs/sha256"));
  CUKILN_CHECK(part.add(bytes));
  CUKILN_CHECK(part.finish(oci_blob_path(layout, blob.digest)));
  return blob;
}

/// Compresses a tar archive into a blob.
class LayerWriter {
 public:
  static Result<LayerWriter> create(const std::string& layout) {
    CUKILN_TRY(PartFile part, PartFile::create(layout + "/blobs/sha256"));
    return LayerWriter(std::move(part));
  }
  Result<void> add(ByteView bytes) {
    archive_.add(bytes);
    return compress(bytes, ZSTD_e_continue);
  }
  /// Errors: io. `archive` receives the digest of the archive.
  Result<OciDescriptor> finish(const std::string& layout, std::string& archive) {
    CUKILN_CHECK(compress({}, ZSTD_e_end));
    archive = archive_.finish();
    OciDescriptor blob{kOciLayerType, layer_.finish(), bytes_};
    CUKILN_CHECK(part_.finish(oci_blob_path(layout, blob.digest)));
    return blob;
  }

 private:
  explicit LayerWriter(PartFile part)
      : part_(std::move(part)),
        context_(::ZSTD_createCCtx(), &::ZSTD_freeCCtx),
        buffer_(::ZSTD_CStreamOutSize(), '\0') {
    if (context_ == nullptr) {
      throw std::bad_alloc();
    }
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  }
  Result<void> compress(ByteView bytes, ZSTD_EndDirective mode) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
      const std::size_t left = ::ZSTD_compressStream2(context_.get(), &out, &in, mode);
      if (::ZSTD_isError(left) != 0) {
        return make_error(ErrorCode::io, "cannot compress the layer: {}",
                          ::ZSTD_getErrorName(left));
      }
      const ByteView made(buffer_.data(), out.pos);
      layer_.add(made);
      bytes_ += made.size();
      CUKILN_CHECK(part_.add(made));
      if (mode == ZSTD_e_end ? left == 0 : in.pos == in.size) {
        return {};
      }
    }
  }

  PartFile part_;
  Sha256 archive_, layer_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;
};

/// Adds a file of the store to a layer.
Result<void> add_file(LayerWriter& layer, const std::string& store, const std::string& name) {
  const std::string path = store + "/" + name;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    return cannot("read", path);
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes > kMaxTarMember) {
    return make_error(ErrorCode::invalid_argument, "{} has {} bytes; an image takes at most {}",
                      path, bytes, kMaxTarMember);
  }
  CUKILN_CHECK(layer.add(tar_header({name, bytes})));
  std::string buffer(kOciCopyBytes, '\0');
  for (std::uint64_t rest = bytes; rest > 0;) {
    const ssize_t got =
        ::read(file.get(), buffer.data(), std::min<std::uint64_t>(rest, buffer.size()));
    if (got <= 0) {
      return cannot("read", path);
    }
    CUKILN_CHECK(layer.add(ByteView(buffer.data(), static_cast<std::size_t>(got))));
    rest -= static_cast<std::uint64_t>(got);
  }
  return layer.add(tar_padding(bytes));
}

Result<OciDescriptor> write_layer(const std::string& layout, const std::string& store,
                                  std::string& archive) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(store, failed), end; !failed && at != end;
       at.increment(failed)) {
    std::string name = at->path().lexically_relative(store).string();
    names.push_back(at->is_directory(failed) ? name + "/" : std::move(name));
  }
  if (failed) {
    return make_error(ErrorCode::io, "cannot read {}: {}", store, failed.message());
  }
  std::sort(names.begin(), names.end());
  CUKILN_TRY(LayerWriter layer, LayerWriter::create(layout));
  for (const std::string& name : names) {
    CUKILN_CHECK(name.ends_with('/') ? layer.add(tar_header({name, 0}))
                                     : add_file(layer, store, name));
  }
  CUKILN_CHECK(layer.add(std::string(2 * kTarBlock, '\0')));
  return layer.finish(layout, archive);
}

/// The labels that MCV writes on the images of other caches, by its mcv/pkg/cache at 2804b8d9
/// (github.com/redhat-et/MCU): tools of clusters tell by them which GPUs an image is for.
void add_mcv_labels(OciJson& annotations, const OciLabels& labels, std::uint64_t bytes) {
  std::set<std::string> archs;  // `90` of sm_90 and of sm_90a
  for (const std::string& target : labels.targets) {
    archs.insert(target.substr(3, target.find_last_of("0123456789") - 2));
  }
  OciJson gpus = OciJson::array();
  for (const std::string& arch : archs) {
    gpus.push_back({{"backend", "cuda"}, {"arch", arch}, {"warp_size", 32}});
  }
  annotations["cache.triton.image/summary"] = OciJson{{"targets", std::move(gpus)}}.dump();
  annotations["cache.triton.image/entry-count"] = fmt::format("{}", labels.modules.size());
  annotations["cache.triton.image/cache-size-bytes"] = fmt::format("{}", bytes);
}

OciJson annotations_of(const OciLabels& labels) {
  return {{"org.opencontainers.image.title", "cukiln kernels"},
          {"org.opencontainers.image.description",
           fmt::format("A system store of cukiln with {} modules", labels.modules.size())},
          {"cukiln.version", labels.version},
          {"cukiln.targets", fmt::format("{}", fmt::join(labels.targets, ","))},
          {"cukiln.modules", fmt::format("{}", fmt::join(labels.modules, ","))}};
}

/// Prepares a folder for a layout. Errors: invalid_argument (it has other files).
Result<void> prepare_layout(const std::string& directory) {
  std::error_code failed;
  const bool is_layout = fs::exists(directory + "/oci-layout", failed);
  if (!is_layout && fs::exists(directory, failed) && !fs::is_empty(directory, failed)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is neither empty nor an OCI image layout; name another folder",
                      directory);
  }
  fs::create_directories(directory + "/blobs/sha256", failed);
  if (failed) {
    return make_error(ErrorCode::io, "cannot create {}: {}", directory, failed.message());
  }
  return write_output(directory + "/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
}

/// Names of modules are of files, whose names may be any bytes.
std::string text_of(const OciJson& json) {
  return json.dump(-1, ' ', false, OciJson::error_handler_t::replace);
}

void remove_other_blobs(const std::string& layout, const std::set<std::string>& kept) {
  std::error_code ignored;
  for (const auto& one : fs::directory_iterator(layout + "/blobs/sha256", ignored)) {
    const std::string digest = std::string(kOciDigestKind) + one.path().filename().string();
    if (is_oci_digest(digest) && kept.count(digest) == 0) {
      fs::remove(one.path(), ignored);
    }
  }
}

}  // namespace

Result<OciSummary> write_oci_layout(const std::string& directory, const std::string& store,
                                    const OciLabels& labels, const SecretKey* key) {
  CUKILN_CHECK(prepare_layout(directory));
  std::string archive;
  CUKILN_TRY(const OciDescriptor layer, write_layer(directory, store, archive));
  OciJson annotations = annotations_of(labels);
  add_mcv_labels(annotations, labels, layer.bytes);
  const OciJson config{{"architecture", kArchitecture},
                       {"os", "linux"},
                       {"config", {{"Labels", annotations}}},
                       {"rootfs", {{"type", "layers"}, {"diff_ids", {archive}}}},
                       {"history", {{{"created_by", "cukiln export --oci"}}}}};
  CUKILN_TRY(const OciDescriptor settings, write_blob(directory, kOciConfigType, text_of(config)));
  OciJson manifest{{"schemaVersion", 2},
                   {"mediaType", kOciManifestType},
                   {"config", settings.json()},
                   {"layers", {layer.json()}},
                   {"annotations", annotations}};
  if (key != nullptr) {
    EnvelopeHead head;
    head.name = ObjectName::of_image(archive);
    manifest["annotations"][kOciSignature] =
        to_base64(seal_envelope(std::move(head), archive, key));
  }
  CUKILN_TRY(const OciDescriptor image, write_blob(directory, kOciManifestType, text_of(manifest)));
  OciJson entry = image.json();
  entry["annotations"] = {{"org.opencontainers.image.ref.name", kImageName}};
  entry["platform"] = {{"architecture", kArchitecture}, {"os", "linux"}};
  const OciJson index{{"schemaVersion", 2},
                      {"mediaType", "application/vnd.oci.image.index.v1+json"},
                      {"manifests", {std::move(entry)}}};
  CUKILN_CHECK(write_output(directory + "/index.json", text_of(index)));
  remove_other_blobs(directory, {layer.digest, settings.digest, image.digest});
  return OciSummary{image.digest, layer.bytes + settings.bytes + image.bytes};
}

}  // namespace cukiln
