// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/in_flight_table.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using cukiln::CompileRequest;
using cukiln::UniqueFd;
using cukiln::daemon::InFlightTable;
using cukiln::daemon::ReplySink;
using cukiln::daemon::RequestHandle;

namespace {

constexpr std::uint64_t kFirst = 1, kSecond = 2;

struct Table : ReplySink {
  std::vector<std::uint64_t> hung_up;
  InFlightTable table;

  void reply(const RequestHandle&, cukiln::wire::DaemonOp, std::string,
             std::shared_ptr<UniqueFd>) override {}
  void hang_up(const RequestHandle& request) noexcept override {
    hung_up.push_back(request.session);
  }

  InFlightTable::Iterator add(std::uint64_t session, const std::string& name) {
    InFlightTable::Compiles one;
    one.emplace_back(*this);
    one.front().session = session;
    one.front().submission.canonical = std::make_shared<const std::string>(name);
    one.front().submission.digest = CompileRequest::digest_of(name);
    one.front().submission.bytes = 100;
    return table.add(std::move(one));
  }
};

RequestHandle of_session(std::uint64_t session, std::uint64_t id = 1) {
  return {.session = session, .id = id};
}

}  // namespace

// fault 163
TEST_CASE_FIXTURE(Table, "one session's many compiles do not delay another session's") {
  const auto first = add(kFirst, "a1");
  const auto second = add(kFirst, "a2");
  add(kFirst, "a3");
  const auto others = add(kSecond, "b1");
  CHECK(table.next(3) == first);
  table.set_running(first);
  CHECK(table.next(3) == others);  // the second session has none running
  table.set_running(others);
  CHECK(table.next(2) == table.end());
  CHECK(table.next(3) == second);
  table.set_running(second);
  table.set_ended(others);
  table.take(others);
  CHECK(table.next(3) == table.end());  // the last place is for another session
  const auto more = add(kSecond, "b2");
  CHECK(table.next(3) == more);
}

TEST_CASE_FIXTURE(Table, "one session may take the only place") {
  const auto only = add(kFirst, "a1");
  add(kSecond, "b1");
  CHECK(table.next(1) == only);
  table.set_running(only);
  CHECK(table.next(1) == table.end());
}

TEST_CASE_FIXTURE(Table,
                  "a compile counts for the session of its first request, a waiter for its") {
  const auto place = add(kFirst, "a1");
  table.add_waiter(place, of_session(kFirst));
  table.add_waiter(place, of_session(kSecond, 1));
  table.add_waiter(place, of_session(kSecond, 2));
  CHECK(table.usage_of(kFirst).compiles == 1);
  CHECK(table.usage_of(kFirst).held_bytes == 100);
  CHECK(table.usage_of(kFirst).waiters == 1);
  CHECK(table.usage_of(kSecond).compiles == 0);
  CHECK(table.usage_of(kSecond).waiters == 2);
  table.drop_waiter(place, of_session(kFirst, 0));  // the session ends
  table.drop_waiter(place, of_session(kSecond, 1));
  CHECK(table.usage_of(kFirst).compiles == 1);
  CHECK(table.usage_of(kFirst).waiters == 0);
  CHECK(table.usage_of(kSecond).waiters == 1);
  CHECK(table.usage().waiters == 1);
}

TEST_CASE_FIXTURE(Table, "a compile that is taken out is no longer found or counted") {
  const auto place = add(kFirst, "a1");
  add(kFirst, "a2");
  table.add_waiter(place, of_session(kSecond));
  CHECK(table.usage().held_bytes == 200);
  CHECK(table.find(CompileRequest::digest_of("a1")) == place);
  const std::uint64_t serial = place->serial;
  CHECK(table.take(place).front().waiters.size() == 1);
  CHECK(table.find(CompileRequest::digest_of("a1")) == table.end());
  CHECK(table.find(CompileRequest::digest_of("a2")) != table.end());
  CHECK(table.find(serial) == table.end());
  CHECK(table.usage().held_bytes == 100);
  CHECK(table.usage().waiters == 0);
  CHECK(table.usage_of(kFirst).compiles == 1);
  CHECK(table.usage_of(kSecond).waiters == 0);
  CHECK(table.size() == 1);
}

TEST_CASE_FIXTURE(Table,
                  "waiters without a reply are disconnected when their compile is destroyed") {
  const auto place = add(kFirst, "a1");
  for (const std::uint64_t session : {7, 8, 9}) {
    table.add_waiter(place, of_session(session));
  }
  {
    const auto taken = table.take(place);
    CHECK(hung_up.empty());
    place->waiters.erase(place->waiters.begin());  // it was answered
  }
  CHECK(hung_up == std::vector<std::uint64_t>{8, 9});
}

TEST_CASE_FIXTURE(Table, "a queued compile whose owner leaves goes to the next waiter") {
  const auto place = add(kFirst, "a1");
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
