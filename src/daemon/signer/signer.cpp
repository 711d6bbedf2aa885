// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer/signer.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/printable.hpp"
#include "base/result.hpp"
#include "daemon/signer/offered_files.hpp"
#include "key/nvcc_flags.hpp"
#include "loader/make_entry.hpp"
#include "store/daemon_store.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::daemon {

using wire::SigningRefusal;
using wire::SigningVerdict;

namespace {

template <class... Args>
SigningVerdict refuse(SigningRefusal why, fmt::format_string<Args...> format, Args&&... args) {
  return {why, fmt::format(format, std::forward<Args>(args)...)};
}

bool is_signed(const SigningVerdict& verdict) { return verdict.refusal == SigningRefusal::none; }

}  // namespace

/// What is known of an offer so far.
struct Signer::Candidate {
  std::uint64_t bytes = 0;
  wire::SigningOffer offer;
  std::string canonical;  ///< of the request
  StoreEntry entry;       ///< the daemon's result; once it was compiled again, the signer's
};

Signer::Signer(Options options, Compiler& compiler, RemoteTier& remote)
    : options_(std::move(options)), compiler_(compiler), remote_(remote), rate_(options_.rate) {}

SigningVerdict Signer::judge(const UniqueFd& offer, const wire::Peer& peer, CancelFlags cancelled) {
  Candidate candidate;
  SigningVerdict verdict = check(offer, candidate, cancelled);
  if (is_signed(verdict)) {
    remote_.put(candidate.entry);
  }
  const std::string& module = candidate.offer.order.labels.name;
  if (verdict.refusal == SigningRefusal::differs) {
    options_.log.error("{} is not signed: {}", printable(module), verdict.text);
  } else {
    options_.log.info("{} {}{}{}", printable(module), is_signed(verdict) ? "signed" : "not signed",
                      verdict.text.empty() ? "" : ": ", verdict.text);
  }
  if (options_.audit != nullptr) {
    AuditEvent event{is_signed(verdict) ? "signed" : "not_signed",
                     peer.user,
                     peer.process,
                     {{"module", module}, {"key", candidate.entry.key.hex()}},
                     {{"bytes", candidate.bytes}}};
    if (!is_signed(verdict)) {
      event.texts.emplace_back("reason", wire::name_of(verdict.refusal));
      event.texts.emplace_back("text", verdict.text);
    }
    options_.audit->record(std::move(event));
  }
  return verdict;
}

SigningVerdict Signer::check(const UniqueFd& offer, Candidate& candidate, CancelFlags cancelled) {
  const auto content = wire::map_sealed_file(offer.get(), wire::kMaxOfferBytes);
  if (!content) {
    return refuse(SigningRefusal::malformed, "{}", content.error().message());
  }
  candidate.bytes = content->size();
  auto decoded = wire::SigningOffer::decode(*content);
  auto body = decoded ? wire::EntryBody::decode(decoded->entry) : std::nullopt;
  if (!body) {
    return refuse(SigningRefusal::malformed, "the attached file is not a whole offer");
  }
  candidate.offer = *std::move(decoded);
  auto entry = from_wire(*std::move(body));
  if (!entry) {
    return refuse(SigningRefusal::altered, "the entry's key is not that of its request and files");
  }
  candidate.entry = *std::move(entry);
  candidate.canonical = candidate.offer.order.request.canonical();
  SigningVerdict verdict = check_entry(candidate);
  if (is_signed(verdict)) {
    verdict = check_key(candidate.offer.order.labels.name);
  }
  if (!is_signed(verdict)) {
    return verdict;
  }
  if (!rate_.take(candidate.bytes, std::chrono::steady_clock::now())) {
    return refuse(SigningRefusal::rate, "more than {} entries or {} bytes were offered in a minute",
                  options_.rate.entries, options_.rate.bytes);
  }
  return compile_again(candidate, cancelled);
}

SigningVerdict Signer::check_entry(const Candidate& candidate) const {
  const StoreEntry& entry = candidate.entry;
  const CompileRequest& request = candidate.offer.order.request;
  if (entry.request_canonical != candidate.canonical) {
    return refuse(SigningRefusal::altered, "the entry is not one of the offered request");
  }
  if (entry.labels.name != candidate.offer.order.labels.name ||
      candidate.offer.order.labels.target != request.target.name() ||
      candidate.offer.order.labels.compiler != "nvrtc " + request.toolchain.version) {
    return refuse(SigningRefusal::altered, "the labels are not those of the request");
  }
  if (!entry.signer.empty() || entry.origin != Origin::compiled) {
    return refuse(SigningRefusal::signed_before,
                  "the entry came from elsewhere, signed by \"{}\": expected one that was compiled",
                  entry.signer);
  }
  if (!entry.dependencies.portable()) {
    return refuse(SigningRefusal::not_portable,
                  "the compile read a file by its path on this machine");
  }
  if (const auto allowed = check_arguments(request.options.arguments, request.program.has_value());
      !allowed) {
    return refuse(SigningRefusal::arguments, "{}", allowed.error().message());
  }
  return {};
}

SigningVerdict Signer::check_key(const std::string& module) const {
  const KeyLimits limits = options_.trusted.limits_of(options_.key);
  if (!limits.hold_at(options_.clock->now_s())) {
    return refuse(SigningRefusal::expired,
                  "the key \"{}\" has expired ({}), or the clock was never set", options_.key.name,
                  limits.text());
  }
  if (!limits.cover(module)) {
    return refuse(SigningRefusal::scope, "the key \"{}\" is not trusted for this module ({})",
                  options_.key.name, limits.text());
  }
  return {};
}

SigningVerdict Signer::compile_again(Candidate& candidate, CancelFlags cancelled) {
  const wire::CompileOrder& order = candidate.offer.order;
  Compiler& compiler = compiler_.for_target(order.request.target);
  const auto have = compiler.toolchain();
  if (!have) {
    return refuse(SigningRefusal::compiler, "{}", have.error().message());
  }
  const Toolchain& wanted = order.request.toolchain;
  if (have->version != wanted.version || have->content != wanted.content) {
    return refuse(SigningRefusal::compiler,
                  "the signer's NVRTC {} is not the daemon's NVRTC {}, or another build of it",
                  have->version, wanted.version);
  }
  OfferedFiles files(order.request, candidate.entry.dependencies, candidate.offer.files);
  const CompileJob job{
      {order.request, order.labels.name, &order.labels, options_.compile_timeout, cancelled},
      FileSource(files),
      {},
      nullptr};
  const auto outcome = compiler.compile(job);
  if (!outcome) {
    return refuse(SigningRefusal::not_compiled, "{}", outcome.error().message());
  }
  const CompileResult& result = outcome->result;
  if (!result.observed || result.uses_time) {
    return refuse(SigningRefusal::not_compiled,
                  "the result depends on the time, or on files that were not observed");
  }
  StoreEntry own = make_entry(order.request, candidate.canonical, order.labels, result);
  if (own.key != candidate.entry.key) {
    return refuse(SigningRefusal::differs,
                  "compiled again, it depends on other files: its key is {}, the offered one {}",
                  own.key.hex(), candidate.entry.key.hex());
  }
  if (own.cubin.image.view() != candidate.entry.cubin.image.view()) {
    return refuse(SigningRefusal::differs,
                  "compiled again, it gives another cubin: the daemon or one of its workers was "
                  "tampered with, or NVRTC {} is not deterministic",
                  wanted.version);
  }
  candidate.entry = std::move(own);
  return {};
}

}  // namespace cukiln::daemon
