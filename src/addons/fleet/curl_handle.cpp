// SPDX-License-Identifier: Apache-2.0
#ifdef CUKILN_HAS_CURL

#include "addons/fleet/curl_handle.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "core/base/result.hpp"

namespace cukiln {

namespace {

RemoteStatus status_of(CURLcode code) noexcept {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return RemoteStatus::timeout;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST: return RemoteStatus::unreachable;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM: return RemoteStatus::untrusted;
    case CURLE_FILESIZE_EXCEEDED: return RemoteStatus::oversize;
    default: return RemoteStatus::bad_answer;
  }
}

/// Returns advice on a server's certificate, by OpenSSL's result code (X509_V_ERR_…, part of its
/// ABI).
std::string advice_on(long verdict, const RemoteOptions& options) {
  constexpr long kNotYetValid = 9, kExpired = 10, kSelfSigned = 18, kUnknownSigner = 21;
  if (verdict == kNotYetValid) {
    return "it is not valid yet: check this machine's clock";
  }
  if (verdict == kExpired) {
    return "renew it on the server";
  }
  if (verdict >= kSelfSigned && verdict <= kUnknownSigner) {
    return options.ca.empty()
               ? "add ?ca=FILE to the address, with the certificate of the authority that signed it"
               : fmt::format("{} does not contain the authority that signed it", options.ca);
  }
  // The certificate itself is valid, or was not checked: the name does not match.
  return verdict <= 1 ? "the address must name the server as its certificate does" : "";
}

}  // namespace

bool CurlHandle::available() noexcept {
  static const CURLcode global = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  return global == CURLE_OK;
}

bool CurlHandle::prepare(const std::string& url, SteadyTime deadline,
                         const RemoteOptions& options) {
  using std::chrono::milliseconds;
  const SteadyTime now = std::chrono::steady_clock::now();
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - now).count();
  if (left <= 0) {
    return false;
  }
  const auto connect = std::chrono::ceil<milliseconds>(connect_deadline(deadline) - now).count();
  curl_.reset(::curl_easy_init());
  CURL* const curl = curl_.get();
  if (curl == nullptr) {
    return false;
  }
  ::curl_easy_setopt(curl, CURLOPT_SHARE, kept_.get());
  text_->front() = '\0';
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, text_->data());
  ::curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(left));
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect));
#if LIBCURL_VERSION_NUM >= 0x075700
  ::curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // do not wait for a hanging resolver
#endif
  ::curl_easy_setopt(curl, CURLOPT_PROXY, "");  // ignore the environment's proxies
  ::curl_easy_setopt(curl, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!options.ca.empty()) {  // instead of the authorities that this machine trusts
    ::curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca.c_str());
    ::curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  }
  if (!options.certificate.empty()) {
    ::curl_easy_setopt(curl, CURLOPT_SSLCERT, options.certificate.c_str());
    ::curl_easy_setopt(curl, CURLOPT_SSLKEY, options.certificate.c_str());
  }
  return true;
}

RemoteAnswer CurlHandle::failure(CURLcode code, const RemoteOptions& options) const {
  RemoteAnswer answer;
  answer.status = status_of(code);
  long error = 0;
  ::curl_easy_getinfo(curl_.get(), CURLINFO_OS_ERRNO, &error);
  answer.is_restarting = code == CURLE_COULDNT_CONNECT && error == ECONNREFUSED;
  answer.detail = text_->front() != '\0' ? text_->data() : ::curl_easy_strerror(code);
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    long verdict = 0;
    ::curl_easy_getinfo(curl_.get(), CURLINFO_SSL_VERIFYRESULT, &verdict);
    if (const std::string advice = advice_on(verdict, options); !advice.empty()) {
      answer.detail += "; " + advice;
    }
  } else if (answer.detail.find("certificate required") != std::string::npos) {
    answer.status = RemoteStatus::untrusted;
    answer.detail +=
        "; add ?certificate=FILE to the address, with this machine's certificate and its key";
  }
  return answer;
}

}  // namespace cukiln

#endif
