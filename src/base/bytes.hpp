#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace cukiln {

/// A look at bytes that somebody else owns.
using ByteView = std::string_view;

/// Immutable bytes with shared ownership: copied by reference, never written again.
class SharedBytes {
 public:
  SharedBytes() = default;
  explicit SharedBytes(std::string bytes)
      : bytes_(std::make_shared<const std::string>(std::move(bytes))) {}

  /// The bytes stay where they are, and must outlive this and every copy of it.
  static SharedBytes borrowed(const std::string& bytes) {
    SharedBytes out;
    out.bytes_ = std::shared_ptr<const std::string>(std::shared_ptr<void>(), &bytes);
    return out;
  }

  ByteView view() const noexcept { return bytes_ ? ByteView(*bytes_) : ByteView(); }
  operator ByteView() const noexcept { return view(); }  // NOLINT: a view is what they are for
  const char* data() const noexcept { return view().data(); }
  std::size_t size() const noexcept { return view().size(); }
  bool empty() const noexcept { return view().empty(); }

 private:
  std::shared_ptr<const std::string> bytes_;
};

}  // namespace cukiln
