// SPDX-License-Identifier: Apache-2.0
// What a client may ask of a Server, one function an operation.

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/result.hpp"
#include "daemon/server_client.hpp"
#include "wire/daemon_messages.hpp"
#include "wire/sealed_file.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {

namespace {

using wire::DaemonFrame;
using wire::DaemonOp;

constexpr std::uint64_t kMaxOrderBytes = 128ull << 20;

/// What came in a descriptor is read and not mapped: a file with holes would cost memory to map.
Result<SharedBytes> read_content(DaemonFrame& frame, std::uint64_t max_bytes) {
  if (!frame.attachment || !frame.body.empty()) {
    return SharedBytes(std::move(frame.body));
  }
  CUKILN_TRY(const std::uint64_t size, wire::check_sealed_file(frame.attachment.get(), max_bytes));
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(frame.attachment.get(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return make_error(ErrorCode::io, "what came along cannot be read: {}", errno_text(errno));
    }
    done += static_cast<std::size_t>(got);
  }
  return SharedBytes(std::move(bytes));
}

}  // namespace

bool Server::handle(Client& client, DaemonFrame& frame) {
  client.deadline = std::chrono::steady_clock::time_point::max();
  if (!client.greeted && !frame.is(DaemonOp::hello)) {
    misuse(client, "no_hello");
    return false;
  }
  switch (static_cast<DaemonOp>(frame.op)) {
    case DaemonOp::hello: hello(client, frame); break;
    case DaemonOp::sets: find_sets(client, frame); break;
    case DaemonOp::get: give_entry(client, frame); break;
    case DaemonOp::compile: compile(client, frame); break;
    case DaemonOp::answer: answer(client, frame); break;
    case DaemonOp::source_roots: places(client, frame); break;
    case DaemonOp::cancel:
      if (frame.id != 0) {
        flights_.leave(asker(client, frame.id));
      }
      break;
    case DaemonOp::state:
      send(client, DaemonOp::state_is, frame.id, describe().encode(), nullptr);
      break;
    case DaemonOp::invalidate:
      if (const auto wanted = wire::EntryWanted::decode(frame.body)) {
        blobs_.forget(client.peer.user, wanted->key);
        send(client, DaemonOp::done, frame.id, {}, nullptr);
      } else {
        misuse(client, "invalidate");
      }
      break;
    case DaemonOp::report: take_report(client, frame); break;
    case DaemonOp::ping:
      send(client, DaemonOp::pong, frame.id, std::move(frame.body), nullptr);
      break;
    default:
      send(client, DaemonOp::error, frame.id,
           wire::Refusal::of(make_error(ErrorCode::invalid_argument,
                                        "this daemon does not know operation {}; it is version {}",
                                        frame.op, version()))
               .encode(),
           nullptr);
      break;
  }
  return !client.closed;
}

void Server::hello(Client& client, const DaemonFrame& frame) {
  const auto hello = wire::DaemonHello::decode(frame.body);
  if (!hello || client.greeted) {
    return misuse(client, "hello");
  }
  if (hello->version != wire::kDaemonProtocol) {
    ++counters_.rejected_version;
    return close(client);
  }
  client.greeted = true;
  client.program = hello->program;
}

void Server::find_sets(Client& client, DaemonFrame& frame) {
  ++counters_.sets_asked;
  const auto since = std::chrono::steady_clock::now();
  const auto content = read_content(frame, kMaxOrderBytes);
  const auto wanted = content ? wire::SetsWanted::decode(*content) : std::nullopt;
  if (!wanted) {
    return misuse(client, "sets");
  }
  const UserStores::Handle store = stores_.find(client.peer.user);
  auto sets = store != nullptr ? store->find_sets(wanted->request, wanted->canonical) : SetTree();
  if (!sets) {
    return answer_to(counters_.sets, since, client, DaemonOp::error, frame.id,
                     wire::Refusal::of(sets.error()).encode());
  }
  answer_to(counters_.sets, since, client, DaemonOp::found_sets, frame.id,
            wire::SetsFound{*std::move(sets)}.encode());
}

void Server::give_entry(Client& client, const DaemonFrame& frame) {
  ++counters_.entries_asked;
  const auto since = std::chrono::steady_clock::now();
  const auto wanted = wire::EntryWanted::decode(frame.body);
  if (!wanted) {
    return misuse(client, "get");
  }
  auto sealed = blobs_.get(client.peer.user, wanted->key);
  if (!sealed) {
    return answer_to(counters_.get, since, client, DaemonOp::error, frame.id,
                     wire::Refusal::of(sealed.error()).encode());
  }
  if (*sealed == nullptr) {
    return answer_to(counters_.get, since, client, DaemonOp::miss, frame.id, {});
  }
  ++counters_.entries_given;
  answer_to(counters_.get, since, client, DaemonOp::entry, frame.id, wire::EntryTerms{}.encode(),
            *std::move(sealed));
}

void Server::compile(Client& client, DaemonFrame& frame) {
  const auto terms = wire::CompileTerms::decode(frame.body);
  frame.body.clear();
  const auto content = terms && frame.attachment && frame.id != 0
                           ? read_content(frame, kMaxOrderBytes)
                           : Result<SharedBytes>(Error(ErrorCode::invalid_argument, "compile"));
  auto order = content ? wire::CompileOrder::decode(*content) : std::nullopt;
  if (!order) {
    return misuse(client, "compile");
  }
  flights_.compile(asker(client, frame.id), *terms, *std::move(order));
}

void Server::places(Client& client, DaemonFrame& frame) {
  const auto content = read_content(frame, wire::kMaxDaemonBody);
  auto places = content ? wire::SourceRoots::decode(content->view()) : std::nullopt;
  if (!places) {
    return misuse(client, "places");
  }
  if (watch_ != nullptr) {  // else it is of no interest: this daemon opens nobody's files
    flights_.places(asker(client, frame.id), *std::move(places));
  }
}

/// The numbers decide nothing, so a client may say what it likes; but not under which name.
void Server::take_report(Client& client, const DaemonFrame& frame) {
  const auto report = wire::ClientReport::decode(frame.body);
  if (!report) {
    return misuse(client, "report");
  }
  for (const auto& [name, number] : report->numbers) {
    if (reportable_.contains(name)) {
      store_.count(name, static_cast<std::int64_t>(number));
    }
  }
}

void Server::answer(Client& client, DaemonFrame& frame) {
  auto content = read_content(frame, kMaxOrderBytes);
  if (!content || !flights_.answer(asker(client, frame.id), std::string(content->view()))) {
    misuse(client, "answer");
  }
}

}  // namespace cukiln::daemon
