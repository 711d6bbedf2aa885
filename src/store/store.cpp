#include <pwd.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/result.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

namespace {

/// `~/.cache/cukiln`, by the password database: nothing down here reads the environment.
std::string default_directory() {
  struct passwd entry {};
  struct passwd* found = nullptr;
  char buffer[4096];
  if (::getpwuid_r(::geteuid(), &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr ||
      found->pw_dir == nullptr || found->pw_dir[0] != '/') {
    return {};
  }
  return join_path(found->pw_dir, ".cache/cukiln");
}

}  // namespace

Store::Store(std::unique_ptr<TieredStore> tiers) : tiers_(std::move(tiers)) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

const std::string& Store::bypass_reason() const noexcept { return tiers_->bypass_reason(); }

Result<std::unique_ptr<Store>> open_store(StoreOptions options) {
  return guarded([&]() -> Result<std::unique_ptr<Store>> {
    TieredStore::Options tiers;
    tiers.store = std::move(options);
    if (tiers.store.directory.empty() && !tiers.store.memory_only) {
      tiers.store.directory = default_directory();
      if (tiers.store.directory.empty()) {
        return make_error(ErrorCode::invalid_argument,
                          "user {} has no home directory; set StoreOptions::directory",
                          ::geteuid());
      }
    }
    CUKILN_TRY(std::unique_ptr<TieredStore> opened, TieredStore::open(std::move(tiers)));
    return std::make_unique<Store>(std::move(opened));
  });
}

}  // namespace cukiln
