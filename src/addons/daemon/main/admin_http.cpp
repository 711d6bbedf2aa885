// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/main/admin_http.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "addons/daemon/ops/admin_http_server.hpp"
#include "addons/daemon/ops/http_responder.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

class RunningDaemon final : public ops::OpsSource {
 public:
  RunningDaemon(Server& server, TieredStore& store, const CurrentRemote& remote)
      : server_(server), store_(store), remote_(remote) {}

  Result<wire::DaemonSnapshot> state(std::chrono::milliseconds wait) override {
    if (auto snapshot = server_.snapshot(wait)) {
      return *std::move(snapshot);
    }
    return make_error(ErrorCode::timeout, "the daemon's event loop did not respond for {} ms",
                      wait.count());
  }
  TieredStore& store() override { return store_; }
  RemoteReport remotes() override { return remote_.report(); }
  Result<std::string> compiler() override { return server_.compiler(); }

 private:
  Server& server_;
  TieredStore& store_;
  const CurrentRemote& remote_;
};

}  // namespace

struct AdminHttp::State {
  State(Server& server, TieredStore& store, const CurrentRemote& remote)
      : source(server, store, remote), responder(source) {}
  ~State() {
    if (!path.empty()) {
      ::unlink(path.c_str());
    }
  }
  std::string path;  // of the socket file that this must remove; may be empty
  int port = 0;
  RunningDaemon source;
  ops::HttpResponder responder;
  std::unique_ptr<ops::AdminHttpServer> http;  // destroyed first, because it calls the others
};

AdminHttp::AdminHttp(std::unique_ptr<State> state) : state_(std::move(state)) {}
AdminHttp::~AdminHttp() = default;
int AdminHttp::port() const noexcept { return state_->port; }

Result<std::unique_ptr<AdminHttp>> AdminHttp::open(Options options, Server& server,
                                                   TieredStore& store) {
  auto state = std::make_unique<State>(server, store, *options.remote);
  std::vector<ops::HttpListener> listeners;
  if (options.inherited) {
    listeners.push_back({std::move(options.inherited), false});
  } else {
    CUKILN_TRY(ops::HttpListener listener, ops::listen_on_unix(options.path));
    state->path = options.path;
    listeners.push_back(std::move(listener));
  }
  if (!options.address.empty()) {
    CUKILN_TRY(ops::HttpListener listener, ops::listen_on_loopback(options.address));
    state->port = ops::port_of(listener);
    listeners.push_back(std::move(listener));
  }
  CUKILN_TRY(state->http, ops::AdminHttpServer::open(std::move(listeners),
                                                     [raw = state.get()](ByteView head, bool tcp) {
                                                       return raw->responder.respond(head, tcp);
                                                     }));
  return std::unique_ptr<AdminHttp>(new AdminHttp(std::move(state)));
}

}  // namespace cukiln::daemon
