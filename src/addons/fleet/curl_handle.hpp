// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <array>
#include <memory>
#include <string>

#include "addons/fleet/endpoint.hpp"

namespace cukiln {

struct FreeCurl {
  void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
};
struct FreeCurlShare {
  void operator()(CURLSH* share) const noexcept { ::curl_share_cleanup(share); }
};

/// A libcurl transfer with cukiln's deadlines and trust settings, shared by HTTP and TLS.
class CurlHandle {
 public:
  /// False if libcurl cannot be initialised.
  static bool available() noexcept;

  CurlHandle() : kept_(::curl_share_init()) {
    ::curl_share_setopt(kept_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT);
    ::curl_share_setopt(kept_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  }
  CURL* get() const noexcept { return curl_.get(); }

  /// Prepares a new transfer for `url`, which reuses idle connections. False if no time or no
  /// memory is left.
  bool prepare(const std::string& url, SteadyTime deadline, const RemoteOptions& options);
  /// Returns status, message and advice for a failed transfer.
  RemoteAnswer failure(CURLcode code, const RemoteOptions& options) const;

 private:
  // A new handle for each transfer: if the first header of an answer is a folded one, libcurl 7.88
  // reads the last header of the answer before, which is freed. Connections are kept in `kept_`.
  std::unique_ptr<CURLSH, FreeCurlShare> kept_;
  std::unique_ptr<CURL, FreeCurl> curl_;
  std::unique_ptr<std::array<char, CURL_ERROR_SIZE>> text_ =  // libcurl keeps its address
      std::make_unique<std::array<char, CURL_ERROR_SIZE>>();
};

}  // namespace cukiln
