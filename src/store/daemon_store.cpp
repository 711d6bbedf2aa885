#include "store/daemon_store.hpp"

#include <utility>

#include "base/result.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln {

using wire::DaemonFrame;
using wire::DaemonOp;

wire::EntryBody to_wire(const StoreEntry& entry) {
  wire::EntryBody body;
  body.key = entry.key;
  body.request_canonical = entry.request_canonical;
  body.set_canonical = entry.dependencies.canonical();
  body.kernels = encode_kernels(entry.cubin.kernels);
  body.log = entry.cubin.log;
  body.labels = entry.labels;
  body.compile_us = entry.compile_us;
  body.origin = static_cast<std::uint8_t>(entry.origin);
  body.signer = entry.signer;
  body.image = entry.cubin.image;
  return body;
}

std::optional<StoreEntry> from_wire(wire::EntryBody body) {
  auto dependencies = DependencySet::parse(body.set_canonical);
  auto kernels = decode_kernels(body.kernels);
  if (!dependencies || !kernels ||
      cache_key_of(body.request_canonical, body.set_canonical) != body.key) {
    return std::nullopt;
  }
  StoreEntry entry;
  entry.key = body.key;
  entry.request = CompileRequest::digest_of(body.request_canonical);
  entry.request_canonical = std::move(body.request_canonical);
  entry.dependencies = *std::move(dependencies);
  entry.cubin = {std::move(body.image), *std::move(kernels), std::move(body.log)};
  entry.labels = std::move(body.labels);
  entry.compile_us = body.compile_us;
  entry.origin = static_cast<Origin>(body.origin);
  entry.signer = std::move(body.signer);
  return entry;
}

Result<std::vector<RecordedSet>> DaemonStore::find_dependency_sets(const RequestDigest& request,
                                                                   ByteView request_canonical) {
  CUKILN_TRY(DaemonFrame answer,
             link_->ask(DaemonOp::sets,
                        wire::SetsWanted{request, std::string(request_canonical)}.encode()));
  if (!answer.is(DaemonOp::found_sets)) {
    return wire::error_of(answer);
  }
  CUKILN_TRY(const SharedBytes content, wire::content_of(answer));
  const auto found = wire::SetsFound::decode(content);
  if (!found) {
    return Error(ErrorCode::corrupt, "cukilnd's list of dependency sets cannot be read");
  }
  std::vector<RecordedSet> sets;
  for (const auto& [key, canonical] : found->sets) {
    auto dependencies = DependencySet::parse(canonical);
    if (dependencies && cache_key_of(request_canonical, canonical) == key) {
      sets.push_back({key, *std::move(dependencies), nullptr});
    }
  }
  return sets;
}

Lookup DaemonStore::get(const CacheKey& key) {
  CUKILN_TRY(DaemonFrame answer, link_->ask(DaemonOp::get, wire::EntryWanted{key}.encode()));
  if (answer.is(DaemonOp::miss)) {
    return std::optional<StoreEntry>();
  }
  if (!answer.is(DaemonOp::entry)) {
    return wire::error_of(answer);
  }
  CUKILN_TRY(const SharedBytes content,
             wire::map_sealed_file(answer.attachment.get(), wire::kMaxAttachmentBytes));
  auto body = wire::EntryBody::decode(content);
  auto entry = body ? from_wire(*std::move(body)) : std::nullopt;
  if (!entry || entry->key != key) {
    return make_error(ErrorCode::corrupt, "cukilnd's entry {} cannot be read", key.hex());
  }
  entry->found_in = Tier::daemon;
  return entry;
}

Result<std::string> DaemonStore::source_text(const CacheKey& key) {
  return make_error(ErrorCode::not_found, "cukilnd does not hand out the source of {}", key.hex());
}

}  // namespace cukiln
