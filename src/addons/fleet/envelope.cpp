// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/envelope.hpp"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/cache_format.hpp"
#include "core/base/clock.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/object_codec.hpp"
#include "core/store/signers.hpp"
#include "core/store/source_text.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kEnvelopeMagic = "CKE";
constexpr char kFormat = CUKILN_CACHE_FORMAT[0];
constexpr std::uint8_t kRaw = 0;
constexpr std::uint8_t kZstd = 1;
constexpr std::size_t kMaxTextBytes = 255;

template <class... Args>
Error reject(Rejection& why, Rejection reason, fmt::format_string<Args...> format, Args&&... args) {
  why = reason;
  return make_error(ErrorCode::corrupt, format, std::forward<Args>(args)...);
}

template <std::size_t size>
ByteView bytes_of(const std::array<std::uint8_t, size>& bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

template <std::size_t size>
void copy_to(std::array<std::uint8_t, size>& to, ByteView from) noexcept {
  if (from.size() == size) {
    std::memcpy(to.data(), from.data(), size);
  }
}

/// A decoded header, and the parts of the bytes that it covers.
struct Parsed {
  EnvelopeHead head;
  std::uint8_t codec = kRaw;
  ContentHash stored_hash;
  ByteView signed_bytes;
  Signature signature{};
  ByteView stored;
};

Result<Parsed> parse(ByteView bytes, std::uint64_t max_bytes, Rejection& why) {
  if (bytes.size() > max_bytes) {
    return reject(why, Rejection::oversize, "the object has {} bytes, the limit is {}",
                  bytes.size(), max_bytes);
  }
  if (bytes.size() <= kEnvelopeMagic.size() ||
      bytes.substr(0, kEnvelopeMagic.size()) != kEnvelopeMagic) {
    return reject(why, Rejection::malformed,
                  "the object is not an envelope: expected it to begin with {}", kEnvelopeMagic);
  }
  if (bytes[kEnvelopeMagic.size()] != kFormat) {
    return reject(why, Rejection::version,
                  "the envelope has format {:#04x}, this cukiln reads format {}",
                  static_cast<unsigned char>(bytes[kEnvelopeMagic.size()]), kFormat);
  }
  Parsed out;
  SerialReader in(bytes.substr(kEnvelopeMagic.size() + 1));
  out.codec = in.u8();
  const std::uint64_t stored_bytes = in.u64();
  out.head.raw_bytes = in.u64();
  copy_to(out.head.name.bytes, in.raw(out.head.name.bytes.size()));
  copy_to(out.stored_hash.bytes, in.raw(out.stored_hash.bytes.size()));
  out.head.created_s = static_cast<std::int64_t>(in.u64());
  for (std::string* text : {&out.head.target, &out.head.toolchain, &out.head.signer}) {
    const ByteView value = in.bytes();
    if (value.size() > kMaxTextBytes) {
      return reject(why, Rejection::malformed, "a text in the envelope's header has {} bytes",
                    value.size());
    }
    *text = value;
  }
  const std::size_t head_bytes = bytes.size() - in.remaining();
  copy_to(out.signature, in.raw(out.signature.size()));
  const bool signer_named = out.head.signer.empty() || is_key_name(out.head.signer);
  if (!in.ok() || out.codec > kZstd || !signer_named) {
    return reject(why, Rejection::malformed, "the envelope's header is truncated or damaged");
  }
  const std::uint64_t max_payload = std::max(max_bytes, kMaxPayloadBytes);
  if (stored_bytes > max_bytes || out.head.raw_bytes > max_payload) {
    return reject(why, Rejection::oversize,
                  "the object claims {} bytes, {} unpacked; the limits are {} and {}", stored_bytes,
                  out.head.raw_bytes, max_bytes, max_payload);
  }
  if (stored_bytes != in.remaining()) {
    return reject(why, Rejection::malformed, "the object has {} bytes, its header says {}",
                  in.remaining(), stored_bytes);
  }
  out.signed_bytes = bytes.substr(0, head_bytes);
  out.stored = bytes.substr(bytes.size() - in.remaining());
  return out;
}

Result<std::string> check_signer(const Parsed& envelope, const TrustedKeys& trusted,
                                 const Clock& clock, Rejection& why) {
  const std::string& name = envelope.head.signer;
  if (name.empty()) {
    return reject(why, Rejection::no_signature, "the object is not signed");
  }
  const std::int64_t now_s = clock.now_s();
  TrustedKey signer;
  switch (trusted.verify(name, envelope.signed_bytes, envelope.signature, now_s, signer)) {
    case TrustedKeys::Verdict::good: return signer.key.text();
    case TrustedKeys::Verdict::expired:
      return reject(why, Rejection::expired_signer,
                    "the object is signed by \"{}\", a key that is trusted until {}, and this "
                    "machine's clock says {}; sign it with a key that has not expired, or write a "
                    "later expires= into the list of trusted keys",
                    name, date_text(*signer.limits.expires_s), date_text(now_s));
    case TrustedKeys::Verdict::unknown_signer:
      return reject(why, Rejection::unknown_signer,
                    "the object is signed by \"{}\", which is not among the {} trusted keys", name,
                    trusted.size());
    case TrustedKeys::Verdict::revoked:
      return reject(why, Rejection::revoked_signer,
                    "the object is signed by \"{}\", whose key was revoked", name);
    case TrustedKeys::Verdict::bad_signature: break;
  }
  return reject(why, Rejection::bad_signature,
                "the object's signature does not match the trusted key \"{}\"", name);
}

Result<std::string> unpack(const Parsed& envelope, Rejection& why) {
  if (hash_of(envelope.stored) != envelope.stored_hash) {
    return reject(why, Rejection::bad_hash, "the object's bytes do not match its hash");
  }
  if (envelope.codec == kRaw) {
    if (envelope.stored.size() != envelope.head.raw_bytes) {
      return reject(why, Rejection::oversize, "the object has {} bytes, its header says {}",
                    envelope.stored.size(), envelope.head.raw_bytes);
    }
    return std::string(envelope.stored);
  }
  // The signed header bounds the output, whatever the compressed frame claims or contains.
  std::string payload(static_cast<std::size_t>(envelope.head.raw_bytes), '\0');
  const std::size_t got = ZSTD_decompress(payload.data(), payload.size(), envelope.stored.data(),
                                          envelope.stored.size());
  if (got != payload.size()) {
    return reject(why, Rejection::oversize,
                  "the object does not unpack to the {} bytes that its header says",
                  payload.size());
  }
  return payload;
}

std::string seal_object(EnvelopeHead head, const Object& object, ByteView source_text,
                        const SecretKey* key) {
  head.name = object.name;
  head.created_s = object.created_s;
  SerialWriter out;
  out.bytes(object.kind).bytes(object.request).bytes(object.summary).bytes(object.details);
  out.strings(split_signers(object.signer)).bytes(source_text).raw(object.data);
  return seal_envelope(std::move(head), out.view(), key);
}

/// Reads the chain of the keys that signed an entry or a blob before this object was made; nothing
/// if the list is malformed.
std::optional<std::string> read_signers(SerialReader& in) {
  std::vector<std::string> signers;
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && i <= kMaxSigners && in.ok(); ++i) {
    signers.emplace_back(in.bytes());
  }
  if (!in.ok() || !are_signers(signers)) {
    return std::nullopt;
  }
  std::string chain;
  for (const std::string& signer : signers) {
    chain = with_signer(chain, signer);
  }
  return chain;
}

Result<OpenedEnvelope> open_up_to(std::uint64_t max_bytes, ByteView bytes, const OpenRules& rules,
                                  Rejection& why) {
  CUKILN_TRY(Parsed envelope, parse(bytes, max_bytes, why));
  if (rules.name != nullptr && envelope.head.name != *rules.name) {
    return reject(why, Rejection::wrong_name, "the object has the name {}, expected {}",
                  envelope.head.name.hex(), rules.name->hex());
  }
  OpenedEnvelope out;
  if (rules.trusted != nullptr) {
    auto signer = check_signer(envelope, *rules.trusted, *rules.clock, why);
    if (signer) {
      out.signer = *std::move(signer);
    } else if (!rules.insecure || why == Rejection::revoked_signer) {
      return std::move(signer).error();
    } else {
      why = Rejection::none;
    }
  }
  CUKILN_TRY(out.payload, unpack(envelope, why));
  out.head = std::move(envelope.head);
  return out;
}

/// An object whose payload was decoded. Its `signer` is the chain before the envelope's own.
struct OpenedObject {
  EnvelopeHead head;
  Object object;
  ByteView source_text;  ///< of memory that `object.data` keeps alive
  std::string signer;
};

Result<OpenedObject> open_object(std::uint64_t max_bytes, ByteView bytes, const OpenRules& rules,
                                 const char* word, Rejection& why) {
  CUKILN_TRY(OpenedEnvelope opened, open_up_to(max_bytes, bytes, rules, why));
  const auto payload = std::make_shared<const std::string>(std::move(opened.payload));
  SerialReader in(*payload);
  OpenedObject out;
  out.object.name = opened.head.name;
  out.object.created_s = opened.head.created_s;
  for (std::string* const part :
       {&out.object.kind, &out.object.request, &out.object.summary, &out.object.details}) {
    *part = in.bytes();
  }
  auto chain = read_signers(in);
  out.source_text = in.bytes();
  out.object.data = SharedBytes(payload, in.raw(in.remaining()));
  if (!in.ok() || !chain) {
    return reject(why, Rejection::bad_payload, "the object does not hold {}", word);
  }
  out.object.signer = *std::move(chain);
  out.head = std::move(opened.head);
  out.signer = std::move(opened.signer);
  return out;
}

}  // namespace

const char* name_of(Rejection rejection) noexcept {
  switch (rejection) {
    case Rejection::none: return "none";
    case Rejection::oversize: return "oversize";
    case Rejection::malformed: return "malformed";
    case Rejection::version: return "version";
    case Rejection::wrong_name: return "wrong_name";
    case Rejection::no_signature: return "no_signature";
    case Rejection::unknown_signer: return "unknown_signer";
    case Rejection::revoked_signer: return "revoked_signer";
    case Rejection::expired_signer: return "expired_signer";
    case Rejection::out_of_scope: return "out_of_scope";
    case Rejection::bad_signature: return "bad_signature";
    case Rejection::bad_hash: return "bad_hash";
    case Rejection::bad_payload: return "bad_payload";
    case Rejection::wrong_image: return "wrong_image";
  }
  return "unknown";
}

std::string seal_envelope(EnvelopeHead head, ByteView payload, const SecretKey* key) {
  std::string stored = compress(payload);
  const bool packed = !stored.empty() && stored.size() < payload.size();
  if (!packed) {
    stored = payload;
  }
  SerialWriter out;
  out.raw(kEnvelopeMagic).u8(static_cast<std::uint8_t>(kFormat)).u8(packed ? kZstd : kRaw);
  out.u64(stored.size()).u64(payload.size());
  out.raw(view_of(head.name)).raw(view_of(hash_of(stored)));
  out.u64(static_cast<std::uint64_t>(head.created_s));
  for (const std::string* text : {&head.target, &head.toolchain}) {
    out.bytes(ByteView(*text).substr(0, kMaxTextBytes));
  }
  out.bytes(key != nullptr ? ByteView(key->public_key().name) : ByteView());
  const Signature signature = key != nullptr ? key->sign(out.view()) : Signature{};
  out.raw(bytes_of(signature)).raw(stored);
  return out.take();
}

Result<OpenedEnvelope> open_envelope(ByteView bytes, const OpenRules& rules, Rejection& why) {
  return open_up_to(kMaxEnvelopeBytes, bytes, rules, why);
}

std::string seal_entry(const StoreEntry& entry, const SecretKey* key, bool with_source) {
  EnvelopeHead head;
  head.target = entry.labels.target;
  head.toolchain = entry.labels.compiler;
  return seal_object(std::move(head), encode(entry),
                     with_source ? ByteView(entry.source_text) : ByteView(), key);
}

Result<std::string> accept_signers(std::string_view chain, const std::string& verified,
                                   std::string_view module, const OpenRules& rules,
                                   Rejection& why) {
  const std::string last = verified.substr(0, verified.find(':'));
  if (rules.trusted != nullptr && rules.trusted->revoked().signed_any_of(chain)) {
    return reject(why, Rejection::revoked_signer,
                  "the object is signed by \"{}\", and an earlier signer's key was revoked", last);
  }
  std::string signers = with_signer(chain, verified.empty() ? kUnsigned : verified);
  for (const std::string_view name : {module, rules.module.value_or(module)}) {
    if (rules.trusted != nullptr && !rules.trusted->scopes().cover(signers, name)) {
      return name.empty()
                 ? reject(why, Rejection::out_of_scope,
                          "the blob is signed by \"{}\", and a key that signed it is trusted for "
                          "some modules only, and so for no blob; sign it with a key that has no "
                          "modules= in the list of trusted keys",
                          last)
                 : reject(why, Rejection::out_of_scope,
                          "the object is signed by \"{}\", and a key that signed it is not trusted "
                          "for the module {}; sign a new compile with one that is, or add modules= "
                          "to the list of trusted keys",
                          last, name);
    }
  }
  return signers;
}

Result<StoreEntry> open_entry(ByteView bytes, const OpenRules& rules, Rejection& why) {
  CUKILN_TRY(OpenedObject opened, open_object(kMaxEnvelopeBytes, bytes, rules, "an entry", why));
  Object& object = opened.object;
  const auto summary = decode_summary(object.summary);
  const auto set = set_in_details(object.details);
  if (!object.is_entry() || !summary || !set) {
    return reject(why, Rejection::bad_payload, "the object does not hold an entry");
  }
  const EntryLabels& labels = summary->labels;
  CUKILN_TRY(object.signer, accept_signers(object.signer, opened.signer, labels.name, rules, why));
  if (ObjectName::of(cache_key_of(object.request, *set)) != object.name) {
    return reject(why, Rejection::wrong_name,
                  "the object holds another entry than its name states");
  }
  if (labels.target != opened.head.target || labels.compiler != opened.head.toolchain) {
    return reject(why, Rejection::wrong_image, "the object is for {}, its header says {}",
                  labels.target, opened.head.target);
  }
  const SharedBytes image = object.data;
  const OutputKind output = output_of_request(object.request);
  auto entry = decode_entry(std::move(object));
  if (!entry) {
    const auto target = Target::parse(labels.target);
    const bool is_image = target && check_output(image, *target, output);
    why = is_image ? Rejection::bad_payload : Rejection::wrong_image;
    return entry;
  }
  entry->source_text = opened.source_text;
  return entry;
}

std::string seal_blob(const StoreBlob& blob, const SecretKey* key) {
  return seal_object({}, encode(blob), {}, key);
}

Result<StoreBlob> open_blob(ByteView bytes, const OpenRules& rules, Rejection& why) {
  CUKILN_TRY(OpenedObject opened, open_object(kMaxSealedBlobBytes, bytes, rules, "a blob", why));
  Object& object = opened.object;
  const auto name = BlobName::make(object.kind, object.summary);
  const bool has_more = !object.request.empty() || !object.details.empty() ||
                        !opened.source_text.empty() || !opened.head.target.empty() ||
                        !opened.head.toolchain.empty();
  if (!name || has_more || object.data.size() > kMaxBlobBytes) {
    return reject(why, Rejection::bad_payload, "the object does not hold a blob");
  }
  if (ObjectName::of(name->id) != object.name) {
    return reject(why, Rejection::wrong_name, "the object holds another blob than its name states");
  }
  CUKILN_TRY(object.signer, accept_signers(object.signer, opened.signer, {}, rules, why));
  return decode_blob(std::move(object));
}

const DependencySet* FleetSets::find(const CacheKey& key) const noexcept {
  const auto at = std::find_if(recent.begin(), recent.end(),
                               [&](const RecordedSet& set) { return set.key == key; });
  return at != recent.end() ? &at->dependencies : nullptr;
}

void FleetSets::add(const RecordedSet& set, const SetTree::Load& load) {
  tree.insert({set.key}, set.dependencies, [&](const SetTree::Leaf& leaf) {
    const DependencySet* const known = find(leaf.key);
    return known != nullptr ? std::optional(*known) : load(leaf);
  });
  std::erase_if(recent, [&](const RecordedSet& other) { return other.key == set.key; });
  recent.insert(recent.begin(), set);
}

std::string seal_sets(ByteView request_canonical, FleetSets sets, const SecretKey* key,
                      std::int64_t now_s) {
  EnvelopeHead head;
  head.name = ObjectName::of_sets(request_canonical);
  head.created_s = now_s;
  if (const auto fields = RequestFields::parse(request_canonical)) {
    head.target = fields->target.name();
    head.toolchain = "nvrtc " + fields->toolchain.version;
  }
  if (sets.recent.size() > kMaxFleetSets) {
    sets.recent.resize(kMaxFleetSets);
  }
  for (const SetTree::Leaf& leaf : sets.tree.leaves()) {
    if (sets.tree.size() <= kMaxFleetSets) {
      break;
    }
    if (sets.find(leaf.key) == nullptr) {
      sets.tree.remove(leaf.key);
    }
  }
  for (;;) {
    SerialWriter out;
    out.bytes(sets.tree.encoded());
    out.u32(static_cast<std::uint32_t>(sets.recent.size()));
    for (const auto& [set_key, dependencies] : sets.recent) {
      out.raw(view_of(set_key)).bytes(dependencies.canonical());
    }
    std::string sealed = seal_envelope(head, out.view(), key);
    if (sealed.size() <= kMaxSetsObjectBytes || sets.recent.empty()) {
      return sealed;
    }
    sets.recent.resize(sets.recent.size() / 2);
  }
}

Result<FleetSets> open_sets(ByteView bytes, ByteView request_canonical, const TrustedKeys* trusted,
                            Rejection& why, const Clock& clock) {
  if (bytes.size() > kMaxSetsObjectBytes) {
    return reject(why, Rejection::oversize, "the sets of a request have {} bytes, the limit is {}",
                  bytes.size(), kMaxSetsObjectBytes);
  }
  const ObjectName name = ObjectName::of_sets(request_canonical);
  CUKILN_TRY(const OpenedEnvelope opened,
             open_envelope(bytes, {trusted, &name, false, &clock}, why));
  FleetSets sets;
  SerialReader in(opened.payload);
  auto tree = SetTree::parse(in.bytes());
  const std::uint32_t count = in.u32();
  const RequestDigest request = CompileRequest::digest_of(request_canonical);
  for (std::uint32_t i = 0; i < count && i < kMaxFleetSets && in.ok(); ++i) {
    RecordedSet set;
    set.key = digest_from<CacheKey>(in.raw(sizeof(CacheKey::bytes)));
    const ByteView canonical = in.bytes();
    auto dependencies = DependencySet::parse(canonical);
    if (!in.ok() || !dependencies || cache_key_of(request, canonical) != set.key) {
      return reject(why, Rejection::bad_payload, "the object holds sets of another request");
    }
    set.dependencies = *std::move(dependencies);
    sets.recent.push_back(std::move(set));
  }
  if (!tree || !in.at_end()) {
    return reject(why, Rejection::bad_payload, "the object does not hold a list of sets");
  }
  sets.tree = *std::move(tree);
  return sets;
}

}  // namespace cukiln
