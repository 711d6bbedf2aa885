// SPDX-License-Identifier: Apache-2.0
#include "core/store/object_codec.hpp"

#include <utility>

#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/blob_name.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kRowOverhead = 1024;

struct Details {
  ByteView set, log;
};

std::optional<Details> decode_details(ByteView details) {
  SerialReader in(details);
  Details out;
  out.set = in.bytes();
  out.log = in.bytes();
  return whole(in, out);
}

}  // namespace

std::uint64_t Object::bytes() const noexcept {
  return kind.size() + request.size() + summary.size() + details.size() + signer.size() +
         data.size() + kRowOverhead;
}

Object encode(const StoreEntry& entry) {
  Object object;
  object.name = ObjectName::of(entry.key);
  object.kind = entry.is_failure ? CUKILN_FAILURE_KIND : "";
  object.request = entry.request_canonical;
  const auto& [name, source, target, flags, compiler] = entry.labels;
  object.summary = SerialWriter()
                       .bytes(name)
                       .bytes(source)
                       .bytes(target)
                       .bytes(flags)
                       .bytes(compiler)
                       .u64(static_cast<std::uint64_t>(entry.compile_us))
                       .u32(static_cast<std::uint32_t>(entry.dependencies.files()))
                       .raw(encode_kernels(entry.cubin.kernels))
                       .take();
  object.details =
      SerialWriter().bytes(entry.dependencies.canonical()).bytes(entry.cubin.log).take();
  object.signer = entry.signer;
  object.origin = entry.origin;
  object.created_s = entry.created_s;
  object.data = entry.cubin.image;
  return object;
}

Object encode(const StoreBlob& blob) {
  Object object;
  object.name = ObjectName::of(BlobName::id_of(blob.kind, blob.key));
  object.kind = blob.kind;
  object.summary = blob.key;
  object.signer = blob.signer;
  object.created_s = blob.created_s;
  object.data = blob.bytes;
  return object;
}

Result<EntrySummaryFields> decode_summary(ByteView summary) {
  SerialReader in(summary);
  EntrySummaryFields out;
  auto& [name, source, target, flags, compiler] = out.labels;
  for (std::string* const label : {&name, &source, &target, &flags, &compiler}) {
    *label = in.bytes();
  }
  out.compile_us = static_cast<std::int64_t>(in.u64());
  out.files = in.u32();
  if (!in.ok()) {
    return Error(ErrorCode::corrupt, "the summary of an entry is truncated");
  }
  CUKILN_TRY(out.kernels, decode_kernels(in.raw(in.remaining())));
  return out;
}

std::optional<ByteView> set_in_details(ByteView details) {
  const auto decoded = decode_details(details);
  return decoded ? std::optional(decoded->set) : std::nullopt;
}

Result<StoreEntry> decode_entry(Object object) {
  const RequestDigest request = CompileRequest::digest_of(object.request);
  const OutputKind output = output_of_request(object.request);
  if (output == OutputKind::failure) {
    return Error(ErrorCode::corrupt, "a failure came from elsewhere; expected an entry");
  }
  return decode_entry(std::move(object), request, output);
}

Result<StoreEntry> decode_entry(Object object, const RequestDigest& request, OutputKind output) {
  const auto details = decode_details(object.details);
  const ByteView set = details ? details->set : ByteView();
  StoreEntry entry;
  entry.key = cache_key_of(request, set);
  entry.is_failure = output == OutputKind::failure;
  const bool has_kind = entry.is_failure ? object.is_failure() : object.is_entry();
  if (!has_kind || !details || ObjectName::of(entry.key) != object.name) {
    return make_error(ErrorCode::corrupt,
                      "the request and the dependency set of the entry {} do not hash to its key",
                      object.name.hex());
  }
  CUKILN_TRY(entry.dependencies, DependencySet::parse(set));
  CUKILN_TRY(EntrySummaryFields summary, decode_summary(object.summary));
  CUKILN_TRY(const Target target, Target::parse(summary.labels.target));
  CUKILN_CHECK(check_output(object.data, target, output));
  entry.request = request;
  entry.request_canonical = std::move(object.request);
  entry.cubin = {std::move(object.data), std::move(summary.kernels), std::string(details->log)};
  entry.labels = std::move(summary.labels);
  entry.compile_us = summary.compile_us;
  entry.origin = object.origin;
  entry.signer = std::move(object.signer);
  entry.created_s = object.created_s;
  return entry;
}

Result<StoreBlob> decode_blob(Object object) {
  if (object.is_entry() ||
      ObjectName::of(BlobName::id_of(object.kind, object.summary)) != object.name) {
    return make_error(ErrorCode::corrupt, "the kind and the key of the blob {} do not hash to it",
                      object.name.hex());
  }
  return StoreBlob{std::move(object.kind), std::move(object.summary), std::move(object.data),
                   std::move(object.signer), object.created_s};
}

Result<void> check_consistent(const StoreEntry& entry, const Object& encoded) {
  const RequestDigest request = CompileRequest::digest_of(entry.request_canonical);
  const CacheKey expected = cache_key_of(request, set_in_details(encoded.details).value_or(""));
  const OutputKind kind = output_of_request(entry.request_canonical);
  if (entry.key != expected || entry.request != request ||
      entry.is_failure != (kind == OutputKind::failure)) {
    return make_error(ErrorCode::invalid_argument,
                      "the entry's key is {}, but its request and dependencies hash to {}",
                      entry.key.hex(), expected.hex());
  }
  CUKILN_TRY(const Target target, Target::parse(entry.labels.target));
  if (auto image = check_output(entry.cubin.image, target, kind); !image) {
    return make_error(ErrorCode::invalid_argument, "the entry {} cannot be stored: {}",
                      entry.key.hex(), image.error().message());
  }
  return {};
}

}  // namespace cukiln
