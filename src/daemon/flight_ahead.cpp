// SPDX-License-Identifier: Apache-2.0
// Compiles that nobody has asked for yet.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/flight.hpp"

namespace cukiln::daemon {

void Flights::places(const Asker& asker, wire::SourceRoots places) {
  const auto own = std::find_if(flights_.begin(), flights_.end(),
                                [&](const Flight& flight) { return flight.is_owner(asker); });
  if (own != flights_.end()) {
    own->places = std::make_shared<const wire::SourceRoots>(std::move(places));
  }
}

void Flights::compile_ahead(std::shared_ptr<const wire::CompileOrder> order,
                            std::shared_ptr<const wire::SourceRoots> places) {
  Flight flight;
  flight.user = ::geteuid();
  flight.canonical = order->request.canonical();
  flight.digest = CompileRequest::digest_of(flight.canonical);
  flight.bytes = bytes_of(*order);
  failures_[flight.user].forget(flight.digest);  // it was another file's fault
  if (draining_ || by_request_.contains({flight.user, flight.digest}) ||
      flights_.size() >= options_.max_waiting ||
      held_bytes_ + flight.bytes > options_.max_held_bytes) {
    return;
  }
  auto store = stores_.open(flight.user);
  if (!store) {
    return;
  }
  ++counters_.compiles_ahead;
  flight.store = *std::move(store);
  flight.serial = ++last_serial_;
  flight.order = std::move(order);
  flight.places = std::move(places);
  flight.timeout = options_.longest;
  flight.again = true;  // none of the store's sets holds
  flight.ahead = true;
  begin(std::move(flight));
}

void Flights::start_ahead() {
  const bool clients_wait = std::any_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
    return !flight.ahead && !flight.running();
  });
  if (draining_ || running_ahead_ || clients_wait) {
    return;
  }
  const auto next = std::find_if(flights_.begin(), flights_.end(), [](const Flight& flight) {
    return flight.ahead && !flight.running();
  });
  if (next != flights_.end()) {
    start(*next);
  }
}

}  // namespace cukiln::daemon
