// SPDX-License-Identifier: Apache-2.0
#include "daemon/lookup_service.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/result.hpp"
#include "wire/daemon_messages.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::daemon {

namespace {

using wire::DaemonOp;

constexpr std::uint64_t kMaxWantedBytes = 128ull << 20;
/// Uses decide what is evicted: they may be late, and one job notes many.
constexpr std::chrono::milliseconds kSaveUsesAfter{500};

}  // namespace

/// What came in a descriptor is read and not mapped: a file with holes would cost memory to map.
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
      return make_error(ErrorCode::io, "what came along cannot be read: {}", errno_text(errno));
    }
    done += static_cast<std::size_t>(got);
  }
  return SharedBytes(std::move(bytes));
}

LookupService::LookupService(UserStores& stores, BlockingPool& pool, EventLoop& loop,
                             std::uint64_t cached_bytes)
    : stores_(stores), pool_(pool), cache_(cached_bytes), save_uses_(loop, [this] {
        pool_.submit<bool>(
            [&all = stores_, uses = cache_.take_uses()] {
              save(all, uses);
              return Result<bool>(true);
            },
            [](const Result<bool>&) {});
      }) {}

std::optional<Reply> LookupService::find_sets(UserStores& stores, uid_t user,
                                              wire::DaemonFrame& frame) {
  const auto content = read_content(frame, kMaxWantedBytes);
  const auto wanted = content ? wire::SetsWanted::decode(*content) : std::nullopt;
  if (!wanted) {
    return std::nullopt;
  }
  const UserStores::Handle store = stores.find(user);
  auto sets = store != nullptr ? store->find_sets(wanted->request, wanted->canonical) : SetTree();
  if (!sets) {
    return Reply{DaemonOp::error, wire::Refusal::of(sets.error()).encode()};
  }
  return Reply{DaemonOp::found_sets, wire::SetsFound{*std::move(sets)}.encode()};
}

Result<std::shared_ptr<UniqueFd>> LookupService::seal_entry(UserStores& stores, uid_t user,
                                                            const CacheKey& key) {
  const UserStores::Handle store = stores.find(user);
  CUKILN_TRY(const std::optional<StoreEntry> entry,
             store != nullptr ? store->get(key) : Lookup(std::optional<StoreEntry>()));
  if (!entry) {
    return std::shared_ptr<UniqueFd>();
  }
  CUKILN_TRY(UniqueFd file, to_wire(*entry).seal());
  return std::make_shared<UniqueFd>(std::move(file));
}

std::shared_ptr<UniqueFd> LookupService::cached(uid_t user, const CacheKey& key) {
  auto sealed = cache_.find(user, key);
  if (sealed != nullptr && !save_uses_.is_set()) {
    save_uses_.set_after(kSaveUsesAfter);
  }
  return sealed;
}

void LookupService::save(UserStores& stores, const std::vector<SealedEntryCache::Key>& uses) {
  for (const auto& [user, key] : uses) {
    const UserStores::Handle store = stores.find(user);
    if (store != nullptr && store->disk() != nullptr) {
      store->disk()->touch(key);
    }
  }
}

void LookupService::save_uses() {
  save_uses_.cancel();
  save(stores_, cache_.take_uses());
}

}  // namespace cukiln::daemon
