// SPDX-License-Identifier: Apache-2.0
#include "daemon/in_flight_table.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using cukiln::CompileRequest;
using cukiln::UniqueFd;
using cukiln::daemon::InFlightTable;
using cukiln::daemon::ReplySink;
using cukiln::daemon::RequestHandle;

namespace {

constexpr std::uint32_t kAlice = 1001, kBob = 1002;

struct Table : ReplySink {
  std::vector<std::uint64_t> hung_up;
  InFlightTable table;

  void reply(const RequestHandle&, cukiln::wire::DaemonOp, std::string,
             std::shared_ptr<UniqueFd>) override {}
  void hang_up(const RequestHandle& request) noexcept override {
    hung_up.push_back(request.session);
  }

  InFlightTable::Iterator add(std::uint32_t user, const std::string& name, bool ahead = false) {
    InFlightTable::Compiles one;
    one.emplace_back(*this);
    one.front().user = user;
    one.front().ahead = ahead;
    one.front().submission.canonical = name;
    one.front().submission.digest = CompileRequest::digest_of(name);
    one.front().submission.bytes = 100;
    return table.add(std::move(one));
  }
};

RequestHandle of_session(std::uint64_t session, std::uint64_t id = 1) {
  return {.session = session, .id = id};
}

}  // namespace

TEST_CASE_FIXTURE(Table, "one user's many compiles do not delay another user's") {
  const auto first = add(kAlice, "a1");
  const auto second = add(kAlice, "a2");
  const auto third = add(kAlice, "a3");
  const auto others = add(kBob, "b1");
  CHECK(table.next(2) == first);
  table.set_running(first);
  CHECK(table.next(2) == others);  // Bob has none running
  table.set_running(others);
  CHECK(table.next(2) == table.end());
  const auto carols = add(1003, "c1");
  CHECK(table.next(2) == carols);  // beyond the limit: she has none running
  table.set_running(carols);
  table.set_ended(first);
  table.take(first);
  table.set_ended(carols);
  table.take(carols);
  CHECK(table.next(2) == second);
  table.set_running(second);
  CHECK(table.next(2) == table.end());
  CHECK(table.next(3) == third);
}

TEST_CASE_FIXTURE(Table,
                  "a compile ahead starts when no client's compile is queued, one at a time") {
  const auto ahead = add(kAlice, "saved", true);
  const auto also_ahead = add(kAlice, "saved too", true);
  const auto asked = add(kAlice, "asked");
  CHECK(table.next(1) == asked);
  table.set_running(asked);
  CHECK(table.next(1) == ahead);  // in addition to clients' compiles
  table.set_running(ahead);
  CHECK(table.next(1) == table.end());
  table.set_ended(ahead);
  table.take(ahead);
  CHECK(table.next(1) == also_ahead);
}

TEST_CASE_FIXTURE(Table, "a compile that is taken out is no longer found or counted") {
  const auto place = add(kAlice, "a1");
  add(kBob, "a1");
  CHECK(table.usage().held_bytes == 200);
  CHECK(table.find(kAlice, CompileRequest::digest_of("a1")) == place);
  const std::uint64_t serial = place->serial;
  table.take(place);
  CHECK(table.find(kAlice, CompileRequest::digest_of("a1")) == table.end());
  CHECK(table.find(kBob, CompileRequest::digest_of("a1")) != table.end());
  CHECK(table.find(serial) == table.end());
  CHECK(table.usage().held_bytes == 100);
  CHECK(table.size() == 1);
}

TEST_CASE_FIXTURE(Table,
                  "waiters without a reply are disconnected when their compile is destroyed") {
  const auto place = add(kAlice, "a1");
  place->waiters = {of_session(7), of_session(8), of_session(9)};
  {
    const auto taken = table.take(place);
    CHECK(hung_up.empty());
    place->waiters.erase(place->waiters.begin());  // it was answered
  }
  CHECK(hung_up == std::vector<std::uint64_t>{8, 9});
}

TEST_CASE_FIXTURE(Table, "a queued compile whose owner leaves goes to the next waiter") {
  const auto place = add(kAlice, "a1");
  place->waiters = {of_session(7), of_session(8, 3), of_session(8, 4)};
  place->owner = place->waiters.front();
  CHECK_FALSE(place->drop(of_session(8, 4)));
  CHECK(place->drop(of_session(7, 0)));
  CHECK(place->is_owner(of_session(8, 3)));
  CHECK(place->waiters.size() == 1);
  CHECK(place->drop(of_session(8, 3)));
  CHECK_FALSE(place->owner);
  CHECK(place->waiters.empty());
}
