// SPDX-License-Identifier: Apache-2.0
#include "remote/oci_layout.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/result.hpp"
#include "remote/object_name.hpp"
#include "remote/tar.hpp"
#include "store/system_store.hpp"

namespace cukiln {

namespace {

namespace fs = std::filesystem;
using OciJson = nlohmann::ordered_json;

constexpr const char* kManifestType = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kConfigType = "application/vnd.oci.image.config.v1+json";
constexpr const char* kLayerType = "application/vnd.oci.image.layer.v1.tar+zstd";
constexpr const char* kEmptyType = "application/vnd.oci.empty.v1+json";
constexpr const char* kSignatureType = "application/vnd.cukiln.signature.v1";
constexpr const char* kImageName = "kernels";
constexpr std::string_view kEmptyObject = "{}";
constexpr std::string_view kDigestKind = "sha256:";
constexpr std::uint64_t kMaxDocumentBytes = 4 << 20;
constexpr int kLevel = 9;
constexpr std::size_t kCopyBytes = 1 << 20;
#if defined(__aarch64__)
constexpr const char* kArchitecture = "arm64";
#else
constexpr const char* kArchitecture = "amd64";
#endif

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
    return std::string(kDigestKind) + hex;
  }

 private:
  crypto_hash_sha256_state state_;
};

struct Descriptor {
  std::string type, digest;
  std::uint64_t bytes = 0;
  OciJson json() const { return {{"mediaType", type}, {"digest", digest}, {"size", bytes}}; }
};

template <class... Args>
Error damaged(Rejection& why, fmt::format_string<Args...> format, Args&&... args) {
  why = Rejection::malformed;
  return make_error(ErrorCode::corrupt, format, std::forward<Args>(args)...);
}

bool is_digest(std::string_view text) noexcept {
  return text.size() == kDigestKind.size() + 64 && text.starts_with(kDigestKind) &&
         text.find_first_not_of("0123456789abcdef", kDigestKind.size()) == std::string_view::npos;
}

std::string blob_path(const std::string& layout, const std::string& digest) {
  return layout + "/blobs/sha256/" + digest.substr(kDigestKind.size());
}

Result<void> write_to(const UniqueFd& file, ByteView bytes, const std::string& path) {
  return write_all(file.get(), bytes) ? Result<void>() : cannot("write", path);
}

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
  Result<void> add(ByteView bytes) const { return write_to(file_, bytes, path_); }
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

Result<Descriptor> write_blob(const std::string& layout, const char* type, ByteView bytes) {
  Sha256 hasher;
  hasher.add(bytes);
  Descriptor blob{type, hasher.finish(), bytes.size()};
  CUKILN_TRY(PartFile part, PartFile::create(layout + "/blobs/sha256"));
  CUKILN_CHECK(part.add(bytes));
  CUKILN_CHECK(part.finish(blob_path(layout, blob.digest)));
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
  Result<Descriptor> finish(const std::string& layout, std::string& archive) {
    CUKILN_CHECK(compress({}, ZSTD_e_end));
    archive = archive_.finish();
    Descriptor blob{kLayerType, layer_.finish(), bytes_};
    CUKILN_CHECK(part_.finish(blob_path(layout, blob.digest)));
    return blob;
  }

 private:
  explicit LayerWriter(PartFile part)
      : part_(std::move(part)),
        context_(::ZSTD_createCCtx(), &::ZSTD_freeCCtx),
        buffer_(::ZSTD_CStreamOutSize(), '\0') {
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
  std::string buffer(kCopyBytes, '\0');
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

Result<Descriptor> write_layer(const std::string& layout, const std::string& store,
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

void remove_other_blobs(const std::string& layout, const std::set<std::string>& kept) {
  std::error_code ignored;
  for (const auto& one : fs::directory_iterator(layout + "/blobs/sha256", ignored)) {
    const std::string digest = std::string(kDigestKind) + one.path().filename().string();
    if (is_digest(digest) && kept.count(digest) == 0) {
      fs::remove(one.path(), ignored);
    }
  }
}

}  // namespace

Result<OciSummary> write_oci_layout(const std::string& directory, const std::string& store,
                                    const OciLabels& labels, const SecretKey* key) {
  CUKILN_CHECK(prepare_layout(directory));
  std::string archive;
  CUKILN_TRY(const Descriptor layer, write_layer(directory, store, archive));
  const OciJson annotations = annotations_of(labels);
  const OciJson config{{"architecture", kArchitecture},
                       {"os", "linux"},
                       {"config", {{"Labels", annotations}}},
                       {"rootfs", {{"type", "layers"}, {"diff_ids", {archive}}}},
                       {"history", {{{"created_by", "cukiln export --oci"}}}}};
  CUKILN_TRY(const Descriptor settings, write_blob(directory, kConfigType, config.dump()));
  const OciJson manifest{{"schemaVersion", 2},
                         {"mediaType", kManifestType},
                         {"config", settings.json()},
                         {"layers", {layer.json()}},
                         {"annotations", annotations}};
  CUKILN_TRY(const Descriptor image, write_blob(directory, kManifestType, manifest.dump()));
  std::set<std::string> blobs = {layer.digest, settings.digest, image.digest};
  std::uint64_t bytes = layer.bytes + settings.bytes + image.bytes;
  OciJson entry = image.json();
  entry["annotations"] = {{"org.opencontainers.image.ref.name", kImageName}};
  entry["platform"] = {{"architecture", kArchitecture}, {"os", "linux"}};
  OciJson manifests = OciJson::array({std::move(entry)});
  if (key != nullptr) {
    EnvelopeHead head;
    head.name = ObjectName::of_image(image.digest);
    const std::string signature = seal_envelope(std::move(head), image.digest, key);
    CUKILN_TRY(const Descriptor empty, write_blob(directory, kEmptyType, kEmptyObject));
    CUKILN_TRY(const Descriptor sealed, write_blob(directory, kSignatureType, signature));
    const OciJson referrer{
        {"schemaVersion", 2},     {"mediaType", kManifestType}, {"artifactType", kSignatureType},
        {"config", empty.json()}, {"layers", {sealed.json()}},  {"subject", image.json()}};
    CUKILN_TRY(const Descriptor refers, write_blob(directory, kManifestType, referrer.dump()));
    OciJson listed = refers.json();
    listed["artifactType"] = kSignatureType;
    manifests.push_back(std::move(listed));
    blobs.insert({empty.digest, sealed.digest, refers.digest});
    bytes += empty.bytes + sealed.bytes + refers.bytes;
  }
  const OciJson index{{"schemaVersion", 2},
                      {"mediaType", "application/vnd.oci.image.index.v1+json"},
                      {"manifests", std::move(manifests)}};
  CUKILN_CHECK(write_output(directory + "/index.json", index.dump()));
  remove_other_blobs(directory, blobs);
  return OciSummary{image.digest, bytes};
}

namespace {

/// A folder for what is unpacked; removed by the destructor.
class Unpacked {
 public:
  static Result<Unpacked> create(const std::string& below) {
    std::string path = below + "/cukiln-oci-XXXXXX";
    return ::mkdtemp(path.data()) != nullptr ? Result<Unpacked>(Unpacked(std::move(path)))
                                             : cannot("create a folder in", below);
  }
  Unpacked(Unpacked&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Unpacked& operator=(Unpacked&&) = delete;
  ~Unpacked() {
    std::error_code ignored;
    if (!path_.empty()) {
      fs::remove_all(path_, ignored);
    }
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  explicit Unpacked(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Reads layouts: each document and blob by its digest.
class LayoutReader {
 public:
  LayoutReader(std::string layout, Rejection& why) : layout_(std::move(layout)), why_(why) {}

  struct Image {
    Descriptor manifest, layer;
    std::string archive;                  ///< digest of the unpacked layer
    std::vector<std::string> signatures;  ///< envelopes
  };
  Result<Image> read() const {
    CUKILN_TRY(const OciJson index, document(layout_ + "/index.json"));
    Image image;
    for (const OciJson& one : list(index, "manifests")) {
      CUKILN_TRY(const Descriptor listed, descriptor(one));
      if (listed.type == kManifestType && one.contains("artifactType")) {
        continue;
      }
      if (listed.type != kManifestType || !image.manifest.digest.empty()) {
        return damaged(why_,
                       "{} lists more than one image; expected the one that 'cukiln export "
                       "--oci' wrote",
                       layout_);
      }
      image.manifest = listed;
    }
    if (image.manifest.digest.empty()) {
      return damaged(why_, "{} lists no image", layout_);
    }
    CUKILN_TRY(const OciJson manifest, blob_document(image.manifest));
    const OciJson layers = list(manifest, "layers");
    if (layers.size() != 1) {
      return damaged(why_, "the image in {} has {} layers; expected one with a system store",
                     layout_, layers.size());
    }
    CUKILN_TRY(image.layer, descriptor(layers.front()));
    CUKILN_TRY(const Descriptor settings, descriptor(manifest.value("config", OciJson())));
    CUKILN_TRY(const OciJson config, blob_document(settings));
    const OciJson archives = list(config.value("rootfs", OciJson::object()), "diff_ids");
    if (image.layer.type != kLayerType || archives.size() != 1 || !archives.front().is_string()) {
      return damaged(why_, "the image in {} has a layer of type {}; expected {}", layout_,
                     image.layer.type, kLayerType);
    }
    image.archive = archives.front().get<std::string>();
    CUKILN_TRY(image.signatures, signatures(index, image.manifest.digest));
    return image;
  }

  /// Unpacks the layer's store into a folder.
  Result<void> unpack(const Image& image, const std::string& archive,
                      const std::string& store) const;

 private:
  static OciJson list(const OciJson& of, const char* name) {
    const auto at = of.is_object() ? of.find(name) : of.end();
    return of.is_object() && at != of.end() && at->is_array() ? *at : OciJson::array();
  }
  Result<Descriptor> descriptor(const OciJson& json) const {
    const auto text = [&](const char* name) {
      const auto at = json.is_object() ? json.find(name) : json.end();
      return json.is_object() && at != json.end() && at->is_string() ? at->get<std::string>()
                                                                     : std::string();
    };
    Descriptor found{text("mediaType"), text("digest"), 0};
    const auto size = json.is_object() ? json.find("size") : json.end();
    if (!is_digest(found.digest) || size == json.end() || !size->is_number_unsigned()) {
      return damaged(why_, "{} has a descriptor without size or SHA-256 digest", layout_);
    }
    found.bytes = size->get<std::uint64_t>();
    return found;
  }
  Result<OciJson> parse(ByteView text, const std::string& path) const {
    OciJson json = OciJson::parse(text, nullptr, false);
    return json.is_object() ? Result<OciJson>(std::move(json))
                            : damaged(why_, "{} is not a JSON object", path);
  }
  Result<OciJson> document(const std::string& path) const {
    auto file = read_file(path, kMaxDocumentBytes);
    if (!file) {
      return make_error(file.error().code(),
                        "{} is not an OCI image layout, as 'cukiln export --oci' writes it: {}",
                        layout_, file.error().message());
    }
    return parse(file->bytes.view(), path);
  }
  Result<SharedBytes> blob(const Descriptor& wanted) const {
    const std::string path = blob_path(layout_, wanted.digest);
    CUKILN_TRY(FileContent file, read_file(path, kMaxDocumentBytes));
    Sha256 hasher;
    hasher.add(file.bytes);
    if (file.bytes.size() != wanted.bytes || hasher.finish() != wanted.digest) {
      why_ = Rejection::bad_hash;
      return make_error(ErrorCode::corrupt, "the blob {} does not match its digest", path);
    }
    return std::move(file.bytes);
  }
  Result<OciJson> blob_document(const Descriptor& wanted) const {
    CUKILN_TRY(const SharedBytes bytes, blob(wanted));
    return parse(bytes.view(), blob_path(layout_, wanted.digest));
  }
  Result<std::vector<std::string>> signatures(const OciJson& index,
                                              const std::string& subject) const {
    std::vector<std::string> found;
    for (const OciJson& one : list(index, "manifests")) {
      if (!one.contains("artifactType") || one["artifactType"] != kSignatureType) {
        continue;
      }
      CUKILN_TRY(const Descriptor listed, descriptor(one));
      CUKILN_TRY(const OciJson referrer, blob_document(listed));
      CUKILN_TRY(const Descriptor of, descriptor(referrer.value("subject", OciJson())));
      for (const OciJson& layer : list(referrer, "layers")) {
        CUKILN_TRY(const Descriptor sealed, descriptor(layer));
        CUKILN_TRY(const SharedBytes bytes, blob(sealed));
        if (of.digest == subject) {
          found.emplace_back(bytes.view());
        }
      }
    }
    return found;
  }
  Result<void> decompress(const Image& image, const std::string& to) const;

  std::string layout_;
  Rejection& why_;
};

/// Decompresses a layer to a file, and compares both digests.
Result<void> LayoutReader::decompress(const Image& image, const std::string& to) const {
  const std::string path = blob_path(layout_, image.layer.digest);
  const UniqueFd in(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!in || !out) {
    return cannot("unpack", path);
  }
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(::ZSTD_createDCtx(),
                                                                        &::ZSTD_freeDCtx);
  std::string packed(kCopyBytes, '\0');
  std::string unpacked(kCopyBytes, '\0');
  Sha256 layer;
  Sha256 archive;
  std::uint64_t read_bytes = 0;
  std::uint64_t made_bytes = 0;
  const auto mismatch = [&] {
    why_ = Rejection::bad_hash;
    return make_error(ErrorCode::corrupt, "the layer {} does not match its digest", path);
  };
  for (;;) {
    const ssize_t got = ::read(in.get(), packed.data(), packed.size());
    if (got < 0) {
      return cannot("read", path);
    }
    if (got == 0) {
      break;
    }
    const ByteView part(packed.data(), static_cast<std::size_t>(got));
    layer.add(part);
    read_bytes += part.size();
    ZSTD_inBuffer from{part.data(), part.size(), 0};
    for (bool more = true; more;) {
      ZSTD_outBuffer made{unpacked.data(), unpacked.size(), 0};
      const std::size_t state = ::ZSTD_decompressStream(context.get(), &made, &from);
      made_bytes += made.pos;
      if (::ZSTD_isError(state) != 0 || read_bytes > image.layer.bytes ||
          made_bytes > kMaxTarMember) {
        return mismatch();
      }
      archive.add(ByteView(unpacked.data(), made.pos));
      CUKILN_CHECK(write_to(out, ByteView(unpacked.data(), made.pos), to));
      more = from.pos < from.size || made.pos == made.size;
    }
  }
  return read_bytes == image.layer.bytes && layer.finish() == image.layer.digest &&
                 archive.finish() == image.archive
             ? Result<void>()
             : mismatch();
}

Result<void> LayoutReader::unpack(const Image& image, const std::string& archive,
                                  const std::string& store) const {
  CUKILN_CHECK(decompress(image, archive));
  const UniqueFd in(::open(archive.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in || ::mkdir(store.c_str(), 0700) != 0) {
    return cannot("unpack", archive);
  }
  std::string buffer(kCopyBytes, '\0');
  const auto next = [&](std::uint64_t most) {
    const ssize_t got =
        ::read(in.get(), buffer.data(), std::min<std::uint64_t>(most, buffer.size()));
    return ByteView(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  };
  for (;;) {
    const ByteView header = next(kTarBlock);
    if (header == ByteView(std::string(kTarBlock, '\0'))) {
      return {};
    }
    const auto member = parse_tar_header(header);
    // A store has these folders and files; nothing else is written anywhere.
    const bool expected =
        member && (member->name == "v2/" || member->name == "v2/gen-0001/" ||
                   member->name == "v2/CURRENT" || member->name == "v2/gen-0001/store.db");
    if (!expected) {
      return damaged(why_, "the layer of {} is not a system store", layout_);
    }
    const std::string path = store + "/" + member->name;
    if (member->is_folder()) {
      if (::mkdir(path.c_str(), 0700) != 0) {
        return cannot("create", path);
      }
      continue;
    }
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!out) {
      return cannot("create", path);
    }
    const std::uint64_t padded = member->bytes + tar_padding(member->bytes).size();
    for (std::uint64_t done = 0; done < padded;) {
      const ByteView part = next(padded - done);
      if (part.empty()) {
        return damaged(why_, "the layer of {} is truncated", layout_);
      }
      const std::uint64_t content = done < member->bytes ? member->bytes - done : 0;
      CUKILN_CHECK(write_to(out, part.substr(0, content), path));
      done += part.size();
    }
  }
}

/// Returns the verified signer, `name:base64`; empty if none was verified and the rules allow that.
Result<std::string> signer_of(const LayoutReader::Image& image, const OpenRules& rules,
                              Rejection& why) {
  const ObjectName name = ObjectName::of_image(image.manifest.digest);
  OpenRules of_image = rules;
  of_image.name = &name;
  std::string signer;
  Result<void> first;
  for (const std::string& signature : image.signatures) {
    auto opened = open_envelope(signature, of_image, why);
    if (opened && opened->payload == image.manifest.digest && !opened->signer.empty()) {
      signer = opened->signer;
    } else if (!opened && (first || why == Rejection::revoked_signer)) {
      first = opened.error();
      if (why == Rejection::revoked_signer) {
        return std::move(opened).error();
      }
    }
  }
  if (!signer.empty() || rules.insecure || rules.trusted == nullptr) {
    why = Rejection::none;
    return signer;
  }
  if (!first) {
    return std::move(first).error();
  }
  why = Rejection::no_signature;
  return make_error(ErrorCode::corrupt, "the image is not signed");
}

}  // namespace

bool is_oci_layout(const std::string& path) noexcept {
  return ::access((path + "/oci-layout").c_str(), F_OK) == 0;
}

Result<void> for_each_of_oci_layout(const std::string& directory, const std::string& scratch,
                                    const OpenRules& rules, Rejection& why,
                                    const std::function<Result<void>(const StoreEntry&)>& on_entry,
                                    const std::function<Result<void>(const StoreBlob&)>& on_blob) {
  const LayoutReader layout(directory, why);
  CUKILN_TRY(const LayoutReader::Image image, layout.read());
  CUKILN_TRY(const std::string signer, signer_of(image, rules, why));
  CUKILN_TRY(const Unpacked folder, Unpacked::create(scratch));
  const std::string store = folder / "store";
  CUKILN_CHECK(layout.unpack(image, folder / "layer.tar", store));
  const auto take_entry = [&](StoreEntry entry) -> Result<void> {
    CUKILN_TRY(entry.signer, accept_signers(entry.signer, signer, entry.labels.name, rules, why));
    return on_entry(entry);
  };
  const auto take_blob = [&](StoreBlob blob) -> Result<void> {
    CUKILN_TRY(blob.signer, accept_signers(blob.signer, signer, {}, rules, why));
    return on_blob(blob);
  };
  auto read = on_blob != nullptr ? for_each_of_system_store(store, take_entry, take_blob)
                                 : for_each_of_system_store(store, take_entry, {});
  if (!read && why == Rejection::none && read.error().code() == ErrorCode::not_found) {
    return damaged(why, "the layer of {} is not a system store", directory);
  }
  return read;
}

}  // namespace cukiln
