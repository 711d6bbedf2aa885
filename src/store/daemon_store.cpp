// SPDX-License-Identifier: Apache-2.0
#include "store/daemon_store.hpp"

#include <utility>

#include "base/result.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln {

using wire::DaemonFrame;
using wire::DaemonOp;

namespace {

/// The reply about a blob. Until then the daemon says now and then that it is alive: its remote
/// store may be slow. Errors: the link's.
Result<DaemonFrame> receive_after_progress(wire::DaemonLink::Conversation& conversation) {
  for (;;) {
    CUKILN_TRY(DaemonFrame answer, conversation.receive());
    if (!answer.is(DaemonOp::progress)) {
      return answer;
    }
  }
}

}  // namespace

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

Error DaemonStore::error_of(wire::DaemonLink::Conversation& conversation, DaemonFrame& answer,
                            const char* about) {
  const auto content = wire::content_of(answer);
  auto refusal =
      answer.is(DaemonOp::error) && content ? wire::Refusal::decode(*content) : std::nullopt;
  if (!refusal) {
    return conversation.protocol_error(about);
  }
  conversation.declined();
  return Error(refusal->code, std::move(refusal->message));
}

Result<SetTree> DaemonStore::find_sets(const RequestDigest& request, ByteView request_canonical) {
  CUKILN_TRY(auto conversation, link_->begin());
  return ask_sets(std::move(conversation), request, request_canonical);
}

Result<SetTree> DaemonStore::ask_sets(wire::DaemonLink::Conversation conversation,
                                      const RequestDigest& request, ByteView request_canonical) {
  constexpr const char* kAbout = "dependency sets";
  const wire::SetsWanted wanted{request, std::string(request_canonical)};
  CUKILN_CHECK(conversation.send_content(DaemonOp::sets, wanted.encode()));
  CUKILN_TRY(DaemonFrame answer, conversation.receive());
  if (!answer.is(DaemonOp::found_sets)) {
    return error_of(conversation, answer, kAbout);
  }
  const auto content = wire::content_of(answer);
  auto found = content ? wire::SetsFound::decode(*content) : std::nullopt;
  if (!found) {
    return conversation.protocol_error(kAbout);
  }
  conversation.finish();
  return std::move(found->tree);
}

Lookup DaemonStore::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                         Purpose) {
  CUKILN_TRY(auto conversation, link_->begin());
  if (is_own_(conversation.greeting())) {
    conversation.finish();
    return std::optional<StoreEntry>();
  }
  CUKILN_TRY(const SetTree tree,
             ask_sets(std::move(conversation), request, request_canonical));
  std::string differs;
  const auto candidates =
      tree.candidates([&](const std::string& path) { return check.label(path); }, &differs);
  if (candidates.empty() && !tree.empty()) {
    check.differs(differs);
  }
  for (const SetTree::Leaf& leaf : candidates) {
    CUKILN_TRY(auto entry, get(leaf.key));
    if (entry && entry->request == request &&
        check.holds(entry->dependencies, entry->may_trust_toolkit())) {
      return entry;
    }
  }
  return std::optional<StoreEntry>();
}

Result<std::vector<RecordedSet>> DaemonStore::list_sets(const RequestDigest& request,
                                                        ByteView request_canonical) {
  CUKILN_TRY(const SetTree tree, find_sets(request, request_canonical));
  std::vector<RecordedSet> sets;
  for (const SetTree::Leaf& leaf : tree.leaves()) {
    CUKILN_TRY(auto entry, get(leaf.key));
    if (entry && entry->request == request) {
      sets.push_back({leaf.key, std::move(entry->dependencies)});
    }
  }
  return sets;
}

Lookup DaemonStore::get(const CacheKey& key) {
  constexpr const char* kAbout = "an entry";
  CUKILN_TRY(auto conversation, link_->begin());
  CUKILN_CHECK(conversation.send_content(DaemonOp::get, wire::EntryWanted{key}.encode()));
  CUKILN_TRY(DaemonFrame answer, conversation.receive());
  if (answer.is(DaemonOp::miss)) {
    conversation.finish();
    return std::optional<StoreEntry>();
  }
  if (!answer.is(DaemonOp::entry)) {
    return error_of(conversation, answer, kAbout);
  }
  const auto content = wire::map_sealed_file(answer.attachment.get(), wire::kMaxAttachmentBytes);
  auto body = content ? wire::EntryBody::decode(*content) : std::nullopt;
  auto entry = body ? from_wire(*std::move(body)) : std::nullopt;
  if (!entry || entry->key != key) {
    return conversation.protocol_error(kAbout);
  }
  conversation.finish();
  entry->found_in = Tier::daemon;
  return entry;
}

Result<std::optional<std::string>> DaemonStore::get_blob(const BlobName& name) {
  constexpr const char* kAbout = "a blob";
  CUKILN_TRY(auto conversation, link_->begin());
  const wire::Greeting& greeting = conversation.greeting();
  if (!greeting.keeps_blobs || (!greeting.shares_blobs && is_own_(greeting))) {
    conversation.finish();
    return std::optional<std::string>();
  }
  const wire::BlobWanted wanted{std::string(name.kind), std::string(name.key)};
  CUKILN_CHECK(conversation.send(DaemonOp::get_blob, wanted.encode()));
  CUKILN_TRY(DaemonFrame answer, receive_after_progress(conversation));
  if (answer.is(DaemonOp::miss)) {
    conversation.finish();
    return std::optional<std::string>();
  }
  if (!answer.is(DaemonOp::blob)) {
    return error_of(conversation, answer, kAbout);
  }
  const auto content =
      wire::map_sealed_file(answer.attachment.get(), wire::kMaxBlobAttachmentBytes);
  const auto blob = content ? wire::BlobBody::decode(*content) : std::nullopt;
  if (!blob || blob->kind != name.kind || blob->key != name.key) {
    return conversation.protocol_error(kAbout);
  }
  conversation.finish();
  return std::optional<std::string>(blob->bytes.view());
}

Result<DaemonStore::BlobPut> DaemonStore::put_blob(const BlobName& name, ByteView bytes) {
  CUKILN_TRY(auto conversation, link_->begin());
  const wire::Greeting& greeting = conversation.greeting();
  const bool has_own = is_own_(greeting);
  if (!greeting.keeps_blobs || (!greeting.shares_blobs && has_own)) {
    conversation.finish();
    return BlobPut::not_asked;
  }
  CUKILN_TRY(UniqueFd file, wire::BlobBody::seal(name.kind, name.key, bytes));
  CUKILN_CHECK(conversation.send(DaemonOp::put_blob, {}, std::move(file)));
  CUKILN_TRY(DaemonFrame answer, receive_after_progress(conversation));
  if (!answer.is(DaemonOp::done)) {
    return error_of(conversation, answer, "the storing of a blob");
  }
  conversation.finish();
  return has_own ? BlobPut::stored_in_own : BlobPut::stored;
}

Result<std::string> DaemonStore::source_text(const CacheKey& key) {
  return make_error(ErrorCode::not_found, "cukilnd does not send the source of {}", key.hex());
}

}  // namespace cukiln
