// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_server.hpp"

#include <chrono>
#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

RemoteAnswer RemoteServer::send(RemoteOp op, const Request& request, Success success) {
  const SteadyTime start = SteadyClock::now();
  if (success != Success::none && !breaker_.allows(start)) {
    telemetry_.events.add(RemoteTelemetry::Event::skipped);
    return {RemoteStatus::unreachable, {}, "not sent: the circuit breaker is open after failures"};
  }
  RemoteAnswer answer = request(*endpoint_);
  const auto took = std::chrono::ceil<std::chrono::microseconds>(SteadyClock::now() - start);
  telemetry_.requests.add(answer.status);
  std::uint64_t received = answer.body.size();
  for (const std::string& part : answer.parts) {
    received += part.size();
  }
  telemetry_.events.add(RemoteTelemetry::Event::received_bytes, received);
  traffic_[static_cast<std::size_t>(op)].ended.add(answer.status);
  traffic_[static_cast<std::size_t>(op)].times.add(took);
  if (success == Success::none) {
    return answer;
  }
  if (answer.status == RemoteStatus::ok || answer.status == RemoteStatus::absent) {
    if (answer.status == RemoteStatus::absent || success == Success::on_reply) {
      breaker_.succeeded();
    }
  } else if (breaker_.failed(answer.status, SteadyClock::now(), answer.is_restarting)) {
    if (answer.status == RemoteStatus::denied) {
      options_.log.warn(
          "{} denies access ({}) and is not used any more: correct the credentials in its "
          "address, or the permissions on the server",
          endpoint_->where(), answer.detail);
    } else {
      options_.log.warn("{} is not used for {} s (circuit breaker open): {} ({})",
                        endpoint_->where(), breaker_.pause().count(), answer.detail,
                        name_of(answer.status));
    }
  } else if (!has_failed_.test_and_set()) {
    options_.log.warn("{}: {} ({}); 'cukiln doctor' says what to do", endpoint_->where(),
                      answer.detail, name_of(answer.status));
  } else {
    options_.log.info("{}: {} ({})", endpoint_->where(), answer.detail, name_of(answer.status));
  }
  return answer;
}

template <class Open>
auto RemoteServer::fetch(const ObjectName& name, SteadyTime deadline, Success success,
                         RemoteAnswer& answer, const Open& open)
    -> std::optional<typename decltype(open(ByteView(), std::declval<Rejection&>()))::value_type> {
  answer = send(
      RemoteOp::get, [&](RemoteEndpoint& endpoint) { return endpoint.get(name, deadline); },
      success);
  if (answer.status != RemoteStatus::ok) {
    return std::nullopt;
  }
  Rejection why = Rejection::none;
  auto opened = open(answer.body, why);
  if (!opened) {
    reject(name, why, opened.error());
    return std::nullopt;
  }
  if (success == Success::after_verification) {
    breaker_.succeeded();
  }
  return *std::move(opened);
}

void RemoteServer::reject(const ObjectName& name, Rejection why, const Error& error) {
  telemetry_.rejected.add(why);
  const SteadyTime now = SteadyClock::now();
  absent_.add(name, now + options_.bad_for, now);
  // The server is not at fault if the trust in a signer has ended. An open circuit would keep away
  // the uploads that replace such objects.
  const bool is_limit = why == Rejection::revoked_signer || why == Rejection::expired_signer ||
                        why == Rejection::out_of_scope;
  if (is_limit) {
    breaker_.succeeded();
  }
  const bool opened = !is_limit && breaker_.failed(RemoteStatus::bad_answer, now);
  options_.log.warn(
      "{}: {} ({}); the object is not used{}", endpoint_->where(), error.message(), name_of(why),
      opened ? fmt::format(", and the server is not used for {} s (circuit breaker open)",
                           breaker_.pause().count())
             : "");
}

Result<FleetSets> RemoteServer::open(ByteView sets, ByteView request_canonical,
                                     Rejection& why) const {
  return open_sets(sets, request_canonical, takes_unsigned() ? nullptr : &options_.trusted, why,
                   *options_.clock);
}

std::optional<FleetSets> RemoteServer::fetch_parts(ByteView request_canonical, SteadyTime deadline,
                                                   Success success, RemoteAnswer& answer) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  answer = send(
      RemoteOp::get, [&](RemoteEndpoint& endpoint) { return endpoint.get_parts(name, deadline); },
      success);
  std::optional<FleetSets> sets;
  std::vector<std::pair<Rejection, Error>> rejected;
  for (auto part = answer.parts.rbegin(); part != answer.parts.rend(); ++part) {
    Rejection why = Rejection::none;
    auto opened = open(*part, request_canonical, why);
    if (!opened) {
      rejected.emplace_back(why, std::move(opened).error());
      continue;
    }
    sets = sets ? std::move(sets) : FleetSets();
    for (const RecordedSet& set : opened->recent) {
      sets->add(set, [](const SetTree::Leaf&) { return std::nullopt; });
    }
  }
  if (!sets && !rejected.empty()) {
    reject(name, rejected.back().first, rejected.back().second);
    rejected.pop_back();
  }
  for (const auto& [why, error] : rejected) {  // the others are of use
    telemetry_.rejected.add(why);
    options_.log.info("{}: {} ({}); this set is not used", where(), error.message(), name_of(why));
  }
  if (sets && success == Success::after_verification) {
    breaker_.succeeded();
  }
  return sets;
}

std::optional<FleetSets> RemoteServer::fetch_sets(ByteView request_canonical, SteadyTime deadline,
                                                  Success success, RemoteAnswer& answer) {
  if (has_parts()) {
    return fetch_parts(request_canonical, deadline, success, answer);
  }
  return fetch(ObjectName::of_sets(request_canonical), deadline, success, answer,
               [&](ByteView bytes, Rejection& why) { return open(bytes, request_canonical, why); });
}

std::optional<FleetSets> RemoteServer::sets(ByteView request_canonical, SteadyTime deadline,
                                            bool& absent) {
  RemoteAnswer answer;
  auto found = fetch_sets(request_canonical, deadline, Success::after_verification, answer);
  absent = answer.status == RemoteStatus::absent;
  return found;
}

RemoteAnswer RemoteServer::sets_of_upload(ByteView request_canonical, SteadyTime deadline,
                                          FleetSets& sets) {
  RemoteAnswer answer;
  sets = fetch_sets(request_canonical, deadline, Success::none, answer).value_or(FleetSets());
  if (answer.status == RemoteStatus::absent || answer.status == RemoteStatus::oversize) {
    answer.status = RemoteStatus::ok;  // the upload makes or replaces them
  }
  return answer;
}

std::optional<StoreEntry> RemoteServer::entry(const CacheKey& key, std::string_view module,
                                              SteadyTime deadline, bool is_for_upload) {
  const ObjectName name = ObjectName::of(key);
  if (absent_.has(name, SteadyClock::now())) {
    return std::nullopt;
  }
  RemoteAnswer answer;
  auto found =
      fetch(name, deadline, is_for_upload ? Success::none : Success::after_verification, answer,
            [&](ByteView bytes, Rejection& why) {
              return open_entry(
                  bytes, {&options_.trusted, &name, takes_unsigned(), options_.clock, module}, why);
            });
  if (found) {
    found->origin = Origin::remote;
    found->created_s = 0;  // set by the store that it is put into
  }
  return found;
}

std::optional<StoreBlob> RemoteServer::blob(const BlobId& id, SteadyTime deadline, bool& absent) {
  const ObjectName name = ObjectName::of(id);
  RemoteAnswer answer;
  auto found = fetch(
      name, deadline, Success::after_verification, answer, [&](ByteView bytes, Rejection& why) {
        return open_blob(bytes, {&options_.trusted, &name, takes_unsigned(), options_.clock}, why);
      });
  absent = answer.status == RemoteStatus::absent;
  return found;
}

RemoteAnswer RemoteServer::probe_upload(SteadyTime deadline) {
  const std::string signer = options_.signer();
  const std::string sealed =
      seal_blob(StoreBlob::borrowed("cukiln-doctor", signer, signer), options_.signing_key());
  const ObjectName name = ObjectName::of(BlobName::id_of("cukiln-doctor", signer));
  RemoteAnswer answer = endpoint_->put(name, sealed, deadline);
  if (answer.status != RemoteStatus::ok) {
    return answer;
  }
  answer = endpoint_->get(name, deadline);
  if (answer.status == RemoteStatus::absent ||
      (answer.status == RemoteStatus::ok && answer.body != sealed)) {
    return {RemoteStatus::bad_answer, {}, "it acknowledges an object that it does not have then"};
  }
  return answer;
}

RemoteHealth RemoteServer::health() const {
  RemoteHealth health{endpoint_->where(), breaker_.state(SteadyClock::now()),
                      endpoint_->has_leases(), breaker_.turns()};
  for (std::size_t op = 0; op < traffic_.size(); ++op) {
    health.traffic[op] = {traffic_[op].ended.values(), traffic_[op].times.snapshot()};
  }
  return health;
}

}  // namespace cukiln
