// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <array>
#include <memory>
#include <string>

#include "remote/endpoint.hpp"

namespace cukiln {

struct FreeCurl {
  void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
};
struct FreeCurlShare {
  void operator()(CURLSH* share) const noexcept { ::curl_share_cleanup(share); }
};

/// What HTTP and TLS have in common: libcurl with our deadlines and our idea of whom to trust.
class CurlHandle {
 public:
  /// False: libcurl does not start.
  static bool available() noexcept;

  CurlHandle() : kept_(::curl_share_init()) {
    ::curl_share_setopt(kept_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT);
    ::curl_share_setopt(kept_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  }
  CURL* get() const noexcept { return curl_.get(); }

  /// Afresh for `url`, keeping its connections. False: no time is left, or no memory.
  bool prepare(const std::string& url, SteadyTime deadline, const RemoteOptions& options);
  /// What a failed transfer means, and what to do about it.
  RemoteAnswer failure(CURLcode code, const RemoteOptions& options) const;

 private:
  // A handle is for one transfer: libcurl 7.88's looks, at an answer whose first header is a folded
  // one, at the last header of the answer before, which is freed. Connections outlive it in
  // `kept_`.
  std::unique_ptr<CURLSH, FreeCurlShare> kept_;
  std::unique_ptr<CURL, FreeCurl> curl_;
  std::unique_ptr<std::array<char, CURL_ERROR_SIZE>> text_ =  // libcurl keeps its address
      std::make_unique<std::array<char, CURL_ERROR_SIZE>>();
};

}  // namespace cukiln
