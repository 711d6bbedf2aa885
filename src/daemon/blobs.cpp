#include "daemon/blobs.hpp"

#include <utility>

#include "base/result.hpp"
#include "wire/daemon_frame.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxBlobs = 512;  // each is a descriptor

}  // namespace

Result<std::shared_ptr<UniqueFd>> Blobs::get(const CacheKey& key) {
  if (const auto at = by_key_.find(key); at != by_key_.end()) {
    order_.splice(order_.begin(), order_, at->second);
    if (store_.disk() != nullptr) {
      store_.disk()->note_use(key);
    }
    return at->second->sealed;
  }
  CUKILN_TRY(const std::optional<StoreEntry> entry, store_.get(key));
  if (!entry) {
    return std::shared_ptr<UniqueFd>();
  }
  CUKILN_TRY(UniqueFd fd, to_wire(*entry).seal());
  auto sealed = std::make_shared<UniqueFd>(std::move(fd));
  put(key, sealed);
  return sealed;
}

void Blobs::put(const CacheKey& key, std::shared_ptr<UniqueFd> sealed) {
  if (const auto at = by_key_.find(key); at != by_key_.end()) {
    erase(at->second);
  }
  const auto size = wire::check_sealed_file(sealed->get(), wire::kMaxAttachmentBytes);
  const std::uint64_t bytes = size ? *size : 0;
  if (bytes > max_bytes_) {
    return;
  }
  order_.push_front({key, std::move(sealed), bytes});
  by_key_[key] = order_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_ || order_.size() > kMaxBlobs) {
    erase(std::prev(order_.end()));
  }
}

void Blobs::forget(const CacheKey& key) {
  if (key == CacheKey{}) {
    order_.clear();
    by_key_.clear();
    bytes_ = 0;
  } else if (const auto at = by_key_.find(key); at != by_key_.end()) {
    erase(at->second);
  }
}

void Blobs::erase(std::list<Blob>::iterator at) {
  bytes_ -= at->bytes;
  by_key_.erase(at->key);
  order_.erase(at);
}

}  // namespace cukiln::daemon
