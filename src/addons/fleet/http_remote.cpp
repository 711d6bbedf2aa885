// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/endpoint.hpp"

#ifdef CUKILN_HAS_CURL

#include <sodium.h>

#include <algorithm>
#include <array>
#include <vector>

#include "addons/fleet/curl_handle.hpp"
#include "addons/fleet/envelope.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kS3 = "s3+";

struct FreeUrl {
  void operator()(CURLU* url) const noexcept { ::curl_url_cleanup(url); }
};
struct FreeList {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (::curl_url_get(url, part, &text, 0) != CURLUE_OK || text == nullptr) {
    return {};
  }
  std::string out = text;
  ::curl_free(text);
  return out;
}

std::string sha256_hex(ByteView bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  ::crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size());
  std::string text(hash.size() * 2 + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), hash.data(), hash.size());
  text.pop_back();
  return text;
}

/// The bodies of one transfer.
struct Transfer {
  std::string body;
  bool oversize = false;
  ByteView to_send;
};

std::size_t on_body(char* data, std::size_t one, std::size_t size, void* into) {
  auto& transfer = *static_cast<Transfer*>(into);
  if (transfer.body.size() + one * size > kMaxEnvelopeBytes) {
    transfer.oversize = true;
    return 0;  // aborts the transfer
  }
  transfer.body.append(data, one * size);
  return one * size;
}

std::size_t on_send(char* to, std::size_t one, std::size_t size, void* from) {
  auto& transfer = *static_cast<Transfer*>(from);
  const std::size_t count = std::min(one * size, transfer.to_send.size());
  transfer.to_send.copy(to, count);
  transfer.to_send.remove_prefix(count);
  return count;
}

RemoteStatus status_of(long http) noexcept {
  if (http >= 200 && http < 300) return RemoteStatus::ok;
  if (http >= 300 && http < 400) return RemoteStatus::redirected;
  if (http == 404 || http == 410) return RemoteStatus::absent;
  if (http == 401 || http == 403) return RemoteStatus::denied;
  if (http == 429 || http >= 500) return RemoteStatus::busy;
  return RemoteStatus::bad_answer;
}

class HttpRemote final : public RemoteEndpoint {
 public:
  /// `sigv4` is libcurl's CURLOPT_AWS_SIGV4; empty to send unsigned requests.
  HttpRemote(std::string base, std::string where, bool flat, std::string sigv4,
             RemoteOptions options)
      : base_(std::move(base)),
        where_(std::move(where)),
        flat_(flat),
        sigv4_(std::move(sigv4)),
        options_(std::move(options)) {}

  const std::string& where() const noexcept override { return where_; }

  RemoteAnswer get(const ObjectName& name, SteadyTime deadline) override {
    return perform(name, nullptr, deadline);
  }
  RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime deadline) override {
    RemoteAnswer answer = perform(name, &bytes, deadline);
    answer.body.clear();
    answer.refuses_object = answer.status == RemoteStatus::bad_answer && answer.refuses_object;
    if (answer.status == RemoteStatus::absent) {
      answer.status = RemoteStatus::busy;  // a proxy whose server restarts, or a wrong address
      answer.detail += ": there is no such path or bucket now";
    }
    return answer;
  }

 private:
  std::string url_of(const ObjectName& name) const {
    const std::string hex = name.hex();
    return flat_ ? base_ + "/" + hex : base_ + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
  }

  RemoteAnswer perform(const ObjectName& name, const ByteView* upload, SteadyTime deadline) {
    CurlHandle handle = take();
    if (!handle.prepare(url_of(name), deadline, options_)) {
      return {RemoteStatus::timeout, {}, "no time left to send the request"};
    }
    Transfer transfer;
    CURL* const curl = handle.get();
    ::curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    ::curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
    ::curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(kMaxEnvelopeBytes));
    ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
    ::curl_easy_setopt(curl, CURLOPT_USERAGENT, "cukiln");
    std::string header = "Expect:";  // saves a round trip before the body
    if (!sigv4_.empty()) {           // S3 needs the body's hash, and libcurl would sign "Expect:"
      header = "x-amz-content-sha256: " + sha256_hex(upload != nullptr ? *upload : ByteView());
      ::curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
      ::curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, sigv4_.c_str());
    }
    const std::unique_ptr<curl_slist, FreeList> headers(
        ::curl_slist_append(nullptr, header.c_str()));
    ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    if (upload != nullptr) {
      transfer.to_send = *upload;
      ::curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
      ::curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(upload->size()));
      ::curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_send);
      ::curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    }
    const CURLcode code = ::curl_easy_perform(curl);
    if (code != CURLE_OK) {
      // The handle is dropped: its connection may be in any state.
      return transfer.oversize
                 ? RemoteAnswer{RemoteStatus::oversize, {}, "the reply exceeds the size limit"}
                 : handle.failure(code, options_);
    }
    RemoteAnswer answer;
    long http = 0;
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
    answer.status = status_of(http);
    answer.detail = fmt::format("HTTP status {}", http);
    answer.refuses_object = http >= 400 && http < 500 && http != 408 && http != 425;
    if (answer.status == RemoteStatus::ok) {
      answer.body = std::move(transfer.body);
    }
    give_back(std::move(handle));
    return answer;
  }

  CurlHandle take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) {
      return {};
    }
    CurlHandle handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
  }
  void give_back(CurlHandle handle) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(handle));
  }

  const std::string base_;
  const std::string where_;
  const bool flat_;
  const std::string sigv4_;
  const RemoteOptions options_;
  Mutex mutex_;
  std::vector<CurlHandle> idle_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<RemoteEndpoint>> make_http_remote(const std::string& url,
                                                         const RemoteOptions& options) {
  const bool s3 = url.substr(0, kS3.size()) == kS3;
  const std::unique_ptr<CURLU, FreeUrl> parsed(::curl_url());
  if (!CurlHandle::available() || parsed == nullptr) {
    return Error(ErrorCode::internal, "libcurl cannot be initialised");
  }
  if (::curl_url_set(parsed.get(), CURLUPART_URL, url.c_str() + (s3 ? kS3.size() : 0), 0) !=
          CURLUE_OK ||
      !part_of(parsed.get(), CURLUPART_QUERY).empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "a remote store's address is malformed: expected "
                      "http(s)://[user:password@]host[:port]/path");
  }
  if (s3 && (part_of(parsed.get(), CURLUPART_USER).empty() ||
             part_of(parsed.get(), CURLUPART_PASSWORD).empty())) {
    return make_error(
        ErrorCode::invalid_argument,
        "the address of a store in S3 lacks its keys: expected "
        "s3+http(s)://ACCESS-KEY:SECRET-KEY@host[:port]/bucket[/path], with %2F for a "
        "slash and %2C for a comma in them");
  }
  const auto without_slash = [](std::string text) {
    while (!text.empty() && text.back() == '/') {
      text.pop_back();
    }
    return text;
  };
  const std::string path = without_slash(part_of(parsed.get(), CURLUPART_PATH));
  const bool flat = path.size() >= 3 && path.substr(path.size() - 3) == "/ac";
  std::string base = without_slash(part_of(parsed.get(), CURLUPART_URL));
  for (const CURLUPart secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS}) {
    ::curl_url_set(parsed.get(), secret, nullptr, 0);
  }
  std::string where = without_slash(part_of(parsed.get(), CURLUPART_URL));
  std::string sigv4;
  if (s3) {
    where.insert(0, kS3);
    sigv4 = fmt::format("aws:amz:{}:s3", options.region.empty() ? "us-east-1" : options.region);
  }
  return std::unique_ptr<RemoteEndpoint>(std::make_unique<HttpRemote>(
      std::move(base), std::move(where), flat, std::move(sigv4), options));
}

}  // namespace cukiln

#else  // for portable builds: libcurl cannot be linked statically without twenty other libraries

#include "core/base/result.hpp"

namespace cukiln {

Result<std::unique_ptr<RemoteEndpoint>> make_http_remote(const std::string&, const RemoteOptions&) {
  return Error(ErrorCode::invalid_argument, kWithoutCurl);
}

}  // namespace cukiln

#endif
