// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace cukiln {

/// Bytes owned elsewhere.
using ByteView = std::string_view;

/// Immutable bytes with shared ownership. A copy shares the bytes.
class SharedBytes {
 public:
  SharedBytes() = default;
  explicit SharedBytes(std::string bytes)
      : SharedBytes(std::make_shared<const std::string>(std::move(bytes))) {}
  /// Bytes that `owner` keeps alive, such as a mapping.
  SharedBytes(std::shared_ptr<const void> owner, ByteView view)
      : owner_(std::move(owner)), view_(view) {}
  SharedBytes(const SharedBytes&) = default;
  SharedBytes& operator=(const SharedBytes&) = default;
  SharedBytes(SharedBytes&& other) noexcept
      : owner_(std::move(other.owner_)), view_(std::exchange(other.view_, {})) {}
  SharedBytes& operator=(SharedBytes&& other) noexcept {
    owner_ = std::move(other.owner_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  ~SharedBytes() = default;

  /// Bytes without an owner: they must outlive this object and every copy of it.
  static SharedBytes borrowed(ByteView bytes) {
    SharedBytes out;
    out.view_ = bytes;
    return out;
  }

  ByteView view() const noexcept { return view_; }
  operator ByteView() const noexcept { return view_; }  // NOLINT: a view is what they are for
  const char* data() const noexcept { return view_.data(); }
  std::size_t size() const noexcept { return view_.size(); }
  bool empty() const noexcept { return view_.empty(); }
  friend bool operator==(const SharedBytes& a, ByteView b) noexcept { return a.view_ == b; }

 private:
  explicit SharedBytes(std::shared_ptr<const std::string> text) : view_(*text) {
    owner_ = std::move(text);
  }

  std::shared_ptr<const void> owner_;
  ByteView view_;
};

}  // namespace cukiln
