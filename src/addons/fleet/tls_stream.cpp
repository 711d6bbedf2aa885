// SPDX-License-Identifier: Apache-2.0
// TLS by libcurl, which HTTP needs anyway: it connects, verifies the server's certificate, and then
// sends and receives raw bytes.
#include "addons/fleet/stream.hpp"

#ifdef CUKILN_HAS_CURL

#include "addons/fleet/curl_handle.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

class TlsStream final : public ByteStream {
 public:
  TlsStream(CurlHandle handle, int socket, const RemoteOptions& options)
      : handle_(std::move(handle)), socket_(socket), options_(options) {}

  std::ptrdiff_t send(ByteView bytes) override {
    std::size_t count = 0;
    const CURLcode code = ::curl_easy_send(handle_.get(), bytes.data(), bytes.size(), &count);
    return outcome(code, count);
  }
  std::ptrdiff_t receive(char* to, std::size_t size) override {
    std::size_t count = 0;
    const CURLcode code = ::curl_easy_recv(handle_.get(), to, size, &count);
    return outcome(code, count);
  }
  int socket() const noexcept override { return socket_; }

 private:
  std::ptrdiff_t outcome(CURLcode code, std::size_t count) {
    if (code == CURLE_OK) {
      return static_cast<std::ptrdiff_t>(count);
    }
    if (code == CURLE_AGAIN) {
      return kLater;
    }
    failure_ = handle_.failure(code, options_);
    return kFailed;
  }

  CurlHandle handle_;
  const int socket_;
  const RemoteOptions options_;
};

}  // namespace

bool has_tls() noexcept { return CurlHandle::available(); }

OpenedStream open_tls_stream(const std::string& host, const std::string& port, SteadyTime deadline,
                             const RemoteOptions& options) {
  CurlHandle handle;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  const std::string url = fmt::format("https://{}:{}/", is_ipv6 ? "[" + host + "]" : host, port);
  if (!handle.prepare(url, deadline, options)) {
    return {nullptr, {RemoteStatus::timeout, {}, "no time left to connect"}};
  }
  ::curl_easy_setopt(handle.get(), CURLOPT_CONNECT_ONLY, 1L);
  ::curl_easy_setopt(handle.get(), CURLOPT_SSL_ENABLE_ALPN, 0L);  // no HTTP follows
  if (const CURLcode code = ::curl_easy_perform(handle.get()); code != CURLE_OK) {
    return {nullptr, handle.failure(code, options)};
  }
  curl_socket_t socket = CURL_SOCKET_BAD;
  ::curl_easy_getinfo(handle.get(), CURLINFO_ACTIVESOCKET, &socket);
  return {std::make_unique<TlsStream>(std::move(handle), socket, options), {}};
}

}  // namespace cukiln

#else

namespace cukiln {

bool has_tls() noexcept { return false; }

OpenedStream open_tls_stream(const std::string&, const std::string&, SteadyTime,
                             const RemoteOptions&) {
  return {nullptr, {RemoteStatus::unreachable, {}, kWithoutCurl}};
}

}  // namespace cukiln

#endif
