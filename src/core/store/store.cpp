// SPDX-License-Identifier: Apache-2.0
#include "core/store/tiered_store.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

Store::Store(std::unique_ptr<TieredStore> tiers) : tiers_(std::move(tiers)) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

const std::string& Store::bypass_reason() const noexcept { return tiers_->bypass_reason(); }

}  // namespace cukiln
