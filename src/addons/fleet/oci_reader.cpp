// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "addons/fleet/oci_blob.hpp"
#include "addons/fleet/oci_layout.hpp"
#include "addons/fleet/system_store.hpp"
#include "addons/fleet/tar.hpp"
#include "core/store/object_name.hpp"
#include "core/store/store_directory.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kMaxDocumentBytes = 4 << 20;
/// The deepest document of a layout is a configuration's history. To copy or destroy JSON takes a
/// stack frame a level, and a document of a stranger may have millions.
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxSignatureBytes = 4096;

/// Nothing if `text` is not the base64 of some bytes.
std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size(), '\0');
  std::size_t size = 0;
  if (::sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                          text.size(), nullptr, &size, nullptr,
                          sodium_base64_VARIANT_ORIGINAL) != 0) {
    return std::nullopt;
  }
  bytes.resize(size);
  return bytes;
}

template <class... Args>
Error damaged(Rejection& why, fmt::format_string<Args...> format, Args&&... args) {
  why = Rejection::malformed;
  return make_error(ErrorCode::corrupt, format, std::forward<Args>(args)...);
}

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
      std::filesystem::remove_all(path_, ignored);
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
    OciDescriptor manifest, layer;
    std::string archive;    ///< digest of the unpacked layer
    std::string signature;  ///< an envelope; empty if the image has none
  };
  Result<Image> read() const {
    CUKILN_TRY(const OciJson marker, document(layout_ + "/oci-layout"));
    const auto version = marker.find("imageLayoutVersion");
    if (version == marker.end() || *version != "1.0.0") {
      return damaged(why_, "{}/oci-layout has no imageLayoutVersion 1.0.0", layout_);
    }
    CUKILN_TRY(const OciJson index, document(layout_ + "/index.json"));
    Image image;
    for (const OciJson& one : list(index, "manifests")) {
      CUKILN_TRY(const OciDescriptor listed, descriptor(one));
      if (listed.type != kOciManifestType || !image.manifest.digest.empty()) {
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
    CUKILN_TRY(const OciDescriptor settings, descriptor(manifest.value("config", OciJson())));
    CUKILN_TRY(const OciJson config, blob_document(settings));
    const OciJson archives = list(config.value("rootfs", OciJson::object()), "diff_ids");
    if (image.layer.type != kOciLayerType || archives.size() != 1 ||
        !archives.front().is_string()) {
      return damaged(why_, "the image in {} has a layer of type {}; expected {}", layout_,
                     image.layer.type, kOciLayerType);
    }
    image.archive = archives.front().get<std::string>();
    const OciJson annotations = manifest.value("annotations", OciJson::object());
    if (annotations.is_object() && annotations.contains(kOciSignature)) {
      const OciJson& text = annotations[kOciSignature];
      const auto envelope =
          text.is_string() && text.get_ref<const std::string&>().size() <= kMaxSignatureBytes
              ? from_base64(text.get_ref<const std::string&>())
              : std::nullopt;
      if (!envelope || envelope->empty()) {
        return damaged(why_,
                       "the signature of the image in {} is no base64 of at most {} characters",
                       layout_, kMaxSignatureBytes);
      }
      image.signature = *envelope;
    }
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
  Result<OciDescriptor> descriptor(const OciJson& json) const {
    const auto text = [&](const char* name) {
      const auto at = json.is_object() ? json.find(name) : json.end();
      return json.is_object() && at != json.end() && at->is_string() ? at->get<std::string>()
                                                                     : std::string();
    };
    OciDescriptor found{text("mediaType"), text("digest"), 0};
    const auto size = json.is_object() ? json.find("size") : json.end();
    if (!is_oci_digest(found.digest) || size == json.end() || !size->is_number_unsigned()) {
      return damaged(why_, "{} has a descriptor without size or SHA-256 digest", layout_);
    }
    found.bytes = size->get<std::uint64_t>();
    return found;
  }
  Result<OciJson> parse(ByteView text, const std::string& path) const {
    bool is_shallow = true;
    const auto keep = [&](int depth, OciJson::parse_event_t, const OciJson&) {
      is_shallow = is_shallow && depth <= kMaxDepth;
      return is_shallow;
    };
    OciJson json = OciJson::parse(text, keep, false);
    return is_shallow && json.is_object()
               ? Result<OciJson>(std::move(json))
               : damaged(why_, "{} is not a JSON object of at most {} levels", path, kMaxDepth);
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
  Result<SharedBytes> blob(const OciDescriptor& wanted) const {
    const std::string path = oci_blob_path(layout_, wanted.digest);
    CUKILN_TRY(FileContent file, read_file(path, kMaxDocumentBytes));
    Sha256 hasher;
    hasher.add(file.bytes);
    if (file.bytes.size() != wanted.bytes || hasher.finish() != wanted.digest) {
      why_ = Rejection::bad_hash;
      return make_error(ErrorCode::corrupt, "the blob {} does not match its digest", path);
    }
    return std::move(file.bytes);
  }
  Result<OciJson> blob_document(const OciDescriptor& wanted) const {
    CUKILN_TRY(const SharedBytes bytes, blob(wanted));
    return parse(bytes.view(), oci_blob_path(layout_, wanted.digest));
  }
  Result<void> decompress(const Image& image, const std::string& to) const;

  std::string layout_;
  Rejection& why_;
};

/// Decompresses a layer to a file, and compares both digests.
Result<void> LayoutReader::decompress(const Image& image, const std::string& to) const {
  const std::string path = oci_blob_path(layout_, image.layer.digest);
  const UniqueFd in(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!in || !out) {
    return cannot("unpack", path);
  }
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(::ZSTD_createDCtx(),
                                                                        &::ZSTD_freeDCtx);
  if (context == nullptr) {
    return Error::out_of_memory();
  }
  std::string packed(kOciCopyBytes, '\0');
  std::string unpacked(kOciCopyBytes, '\0');
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
      CUKILN_CHECK(write_oci_bytes(out, ByteView(unpacked.data(), made.pos), to));
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
  std::string buffer(kOciCopyBytes, '\0');
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
    constexpr std::string_view kMembers[] = {
        CUKILN_STORE_FOLDER "/", CUKILN_STORE_FOLDER "/CURRENT", CUKILN_STORE_FOLDER "/gen-0001/",
        CUKILN_STORE_FOLDER "/gen-0001/store.db"};
    const bool expected = member && std::find(std::begin(kMembers), std::end(kMembers),
                                              member->name) != std::end(kMembers);
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
      CUKILN_CHECK(write_oci_bytes(out, part.substr(0, content), path));
      done += part.size();
    }
  }
}

/// Returns the verified signer, `name:base64`; empty if none was verified and the rules allow that.
Result<std::string> signer_of(const LayoutReader::Image& image, const OpenRules& rules,
                              Rejection& why) {
  const bool is_optional = rules.insecure || rules.trusted == nullptr;
  if (image.signature.empty()) {
    why = is_optional ? Rejection::none : Rejection::no_signature;
    return is_optional ? Result<std::string>(std::string())
                       : make_error(ErrorCode::corrupt, "the image is not signed");
  }
  const ObjectName name = ObjectName::of_image(image.archive);
  OpenRules of_image = rules;
  of_image.name = &name;
  auto opened = open_envelope(image.signature, of_image, why);
  if (!opened) {
    if (is_optional && why != Rejection::revoked_signer) {
      why = Rejection::none;
      return std::string();
    }
    return std::move(opened).error();
  }
  if (opened->payload != image.archive) {
    return damaged(why, "the signature of the image is of another one");
  }
  return opened->signer;
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
