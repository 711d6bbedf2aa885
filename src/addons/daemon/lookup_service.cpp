// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/lookup_service.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "addons/daemon/client/object_message.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

using wire::DaemonOp;

constexpr std::uint64_t kMaxLookupBytes = 8ull << 20;  // a request without its texts
/// Uses only decide what is evicted, so they are recorded late, many at a time.
constexpr std::chrono::milliseconds kFlushUsesAfter{500};

/// Gets a blob from the remote store and puts it into the daemon's, with its signers. One that the
/// store cannot take, which counts and logs that, is returned all the same.
std::optional<StoreBlob> fetch_blob(TieredStore& store, RemoteTier& remote, const BlobName& name) {
  auto found = remote.get(name, RemoteTier::Freshness::usual);
  if (found) {
    static_cast<void>(store.add(*found));
  }
  return found;
}

/// The reply with what was found.
template <class Found>
Reply reply_of(const Result<std::optional<Found>>& found, std::string terms = {}) {
  if (found && !*found) {
    return {DaemonOp::miss, {}};
  }
  auto file = found ? seal_object(encode(**found)) : found.error();
  if (!file) {
    return {DaemonOp::error, wire::Refusal::of(file.error()).encode()};
  }
  return {DaemonOp::object, std::move(terms), std::make_shared<UniqueFd>(*std::move(file))};
}

}  // namespace

// The attachment is read and not mapped: mapping a sparse file would allocate its holes.
Result<SharedBytes> read_content(wire::DaemonFrame& frame, std::uint64_t max_bytes) {
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
      return make_error(ErrorCode::io, "cannot read an attachment: {}", errno_text(errno));
    }
    done += static_cast<std::size_t>(got);
  }
  return SharedBytes(std::move(bytes));
}

LookupService::LookupService(TieredStore& store, BlockingPool& pool, EventLoop& loop,
                             std::uint64_t cached_bytes)
    : store_(store), pool_(pool), cache_(cached_bytes), flush_timer_(loop, [this] {
        pool_.submit<bool>(
            [&to = store_, uses = cache_.take_uses()] {
              record_uses(to, uses);
              static_cast<void>(to.flush());  // on failure it is written with the next write
              return Result<bool>(true);
            },
            [](const Result<bool>&) {});
      }) {}

std::shared_ptr<Result<SetTree>> LookupService::find_sets(TieredStore& store,
                                                          wire::DaemonFrame& frame) {
  const auto content = read_content(frame, kMaxLookupBytes);
  const auto terms = content ? wire::ObtainTerms::decode(*content) : std::nullopt;
  if (!terms || terms->timeout_ms != 0) {
    return nullptr;
  }
  const RequestDigest request = CompileRequest::digest_of(terms->canonical);
  return std::make_shared<Result<SetTree>>(store.find_sets(request, terms->canonical));
}

Reply LookupService::read_entry(TieredStore& store, const CacheKey& key) {
  const auto entry = store.get(key);
  return reply_of(entry, wire::EntryTerms{}.encode());
}

Reply LookupService::read_blob(TieredStore& store, RemoteTier* remote,
                               const wire::BlobWanted& wanted) {
  return reply_of([&]() -> Result<std::optional<StoreBlob>> {
    CUKILN_TRY(const BlobName name, BlobName::make(wanted.kind, wanted.key));
    auto blob = store.search(name);
    if (!blob && remote != nullptr) {
      blob = fetch_blob(store, *remote, name);
    }
    return blob ? std::optional(StoreBlob{wanted.kind, wanted.key, std::move(blob->bytes)})
                : std::nullopt;
  }());
}

std::optional<Reply> LookupService::store_blob(TieredStore& store, RemoteTier* remote,
                                               const wire::DaemonFrame& frame) {
  // check_sealed_file refuses holes, so that mapping it allocates nothing.
  const auto blob = blob_of(frame);
  if (!blob) {
    return std::nullopt;
  }
  const auto stored = [&]() -> Result<void> {
    const StoreBlob object{blob->kind, blob->key, blob->bytes, {}, 0};
    CUKILN_CHECK(store.put(object));
    if (remote != nullptr) {
      remote->put(object);
    }
    return {};
  }();
  return stored ? Reply{DaemonOp::done, {}}
                : Reply{DaemonOp::error, wire::Refusal::of(stored.error()).encode()};
}

std::shared_ptr<UniqueFd> LookupService::cached(const CacheKey& key) {
  auto sealed = cache_.find(key);
  if (sealed != nullptr) {
    flush_soon();
  }
  return sealed;
}

void LookupService::flush_soon() {
  if (!flush_timer_.is_set()) {
    flush_timer_.set_after(kFlushUsesAfter);
  }
}

void LookupService::record_uses(TieredStore& store, const std::vector<CacheKey>& uses) {
  for (const CacheKey& key : uses) {
    if (store.disk() != nullptr) {
      store.disk()->touch(key);
    }
  }
}

void LookupService::flush_uses() {
  flush_timer_.cancel();
  record_uses(store_, cache_.take_uses());
}

}  // namespace cukiln::daemon
