// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/object_uploader.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/hasher.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kSignerDigits = 32;
constexpr const char* kOtherKey =
    "make a key with 'cukiln keygen', list its public half in remote_trust on every machine, set "
    "remote_sign to it, then run 'cukiln push'";

}  // namespace

const char* upload_advice(RemoteStatus status) noexcept {
  switch (status) {
    case RemoteStatus::denied:
      return "correct the user and password in the address, or let that user write on the server, "
             "then run 'cukiln push'";
    case RemoteStatus::untrusted:
      return "correct the certificate, or the folder's owner and mode, then run 'cukiln push'";
    case RemoteStatus::hung:
      return "see whether the file server answers, mount it again, then run 'cukiln push'";
    case RemoteStatus::redirected: return "set remote to the new address, then run 'cukiln push'";
    case RemoteStatus::bad_answer:
    case RemoteStatus::oversize:
      return "see the server's log and its limit of sizes, then run 'cukiln push'";
    default: return "when the server takes uploads again, run 'cukiln push'";
  }
}

UploadEnding ObjectUploader::check(const StoreObject& object) const {
  using What = UploadEnding::What;
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  const std::string module = entry != nullptr ? entry->labels.name : std::string();
  const std::string& signers =
      entry != nullptr ? entry->signer : std::get<StoreBlob>(object).signer;
  if (entry != nullptr && !entry->dependencies.portable()) {
    return {What::kept, "kept", "their headers have paths of this machine", {}};
  }
  if (is_unsigned(signers)) {
    return {What::kept, "kept", "imported with --insecure", {}};
  }
  if (options_.trusted.revoked().signed_any_of(signers)) {
    return {What::kept, "kept", "signed by a key that was revoked", {}};
  }
  if (!options_.key) {
    return {};  // of an unsigned folder
  }
  if (auto problem = key_problem(); !problem.detail.empty()) {
    return {What::refused, std::move(problem.reason), std::move(problem.detail),
            std::move(problem.advice)};
  }
  const PublicKey& own = options_.key->public_key();
  const KeyLimits limits = options_.trusted.limits_of(own);
  if (!limits.cover(module)) {
    return {What::lost, "out_of_scope",
            fmt::format("the key in remote_sign, \"{}\", is not trusted for {} in the list of "
                        "trusted keys ({})",
                        own.name, entry != nullptr ? module : "blobs", limits.text()),
            "sign them with another key"};
  }
  return {};
}

RemoteReport::NotUploaded ObjectUploader::key_problem() const {
  if (!options_.key || options_.may_sign()) {
    return {};
  }
  const PublicKey& own = options_.key->public_key();
  const KeyLimits limits = options_.trusted.limits_of(own);
  const bool is_revoked = options_.trusted.is_revoked(own);
  return {{},
          is_revoked ? "revoked" : "expired",
          fmt::format("the key in remote_sign, \"{}\", {} in the list of trusted keys{}", own.name,
                      is_revoked ? "is revoked" : "is expired",
                      is_revoked ? "" : " (" + limits.text() + ")"),
          kOtherKey};
}

RemoteAnswer ObjectUploader::put(RemoteServer& server, const ObjectName& name, ByteView bytes,
                                 SteadyTime deadline, const std::string& part) {
  RemoteAnswer answer = server.send_upload(RemoteOp::put, [&](RemoteEndpoint& endpoint) {
    return part.empty() ? endpoint.put(name, bytes, deadline)
                        : endpoint.put_part(name, part, bytes, deadline);
  });
  telemetry_.events.add(RemoteTelemetry::Event::sent_bytes,
                        answer.status == RemoteStatus::ok ? bytes.size() : 0);
  absent_.remove(name);
  return answer;
}

RemoteAnswer ObjectUploader::add_to_sets(RemoteServer& server, const StoreEntry& entry,
                                         SteadyTime deadline) {
  FleetSets sets;
  std::string part;
  if (server.has_parts()) {
    part = entry.key.hex() + "." + hash_of(options_.signer()).hex().substr(0, kSignerDigits);
  } else if (RemoteAnswer answer = server.sets_of_upload(entry.request_canonical, deadline, sets);
             answer.status != RemoteStatus::ok) {
    return answer;
  }
  sets.add({entry.key, entry.dependencies}, [&](const SetTree::Leaf& leaf) {
    auto other = server.entry(leaf.key, entry.labels.name, deadline, /*is_for_upload=*/true);
    return other ? std::optional(std::move(other->dependencies)) : std::nullopt;
  });
  return put(server, ObjectName::of_sets(entry.request_canonical),
             seal_sets(entry.request_canonical, std::move(sets), options_.signing_key(),
                       options_.clock->now_s()),
             deadline, part);
}

/// Uploads an entry first, so that the sets never name an entry that the server does not have.
UploadEnding ObjectUploader::upload(RemoteServer& server, const ObjectName& name,
                                    const StoreObject& object, SteadyTime deadline) {
  using What = UploadEnding::What;
  if (UploadEnding ending = check(object); ending.what != What::acknowledged) {
    return ending;
  }
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  const std::string sealed = entry != nullptr
                                 ? seal_entry(*entry, options_.signing_key(), false)
                                 : seal_blob(std::get<StoreBlob>(object), options_.signing_key());
  RemoteAnswer answer{RemoteStatus::oversize, {}, "larger than an object of a remote store"};
  if (sealed.size() <= kMaxEnvelopeBytes) {
    answer = put(server, name, sealed, deadline);
  }
  if (answer.status == RemoteStatus::ok && entry != nullptr) {
    answer = add_to_sets(server, *entry, deadline);
  }
  What what = What::failed;
  switch (answer.status) {
    case RemoteStatus::ok: return {};
    case RemoteStatus::denied:
    case RemoteStatus::untrusted:
    case RemoteStatus::hung:
    case RemoteStatus::redirected: what = What::refused; break;
    case RemoteStatus::oversize: what = What::lost; break;
    default: what = answer.refuses_object ? What::lost : What::failed;
  }
  return {what, name_of(answer.status), answer.detail, upload_advice(answer.status)};
}

}  // namespace cukiln
