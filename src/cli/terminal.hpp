// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cukiln::cli {

enum class ColorMode { automatic, always, never };

enum class Color { plain, bold, dim, red, green, yellow, cyan };

/// What is known of the place that a stream goes to.
class Terminal {
 public:
  static constexpr std::size_t kDefaultWidth = 80;

  Terminal() = default;
  Terminal(int descriptor, ColorMode mode);

  bool is_terminal() const noexcept { return is_terminal_; }
  bool has_color() const noexcept { return color_; }
  /// Of the terminal; 80 where there is none.
  std::size_t width() const noexcept { return width_; }

  std::string paint(Color ink, std::string_view text) const;

 private:
  bool is_terminal_ = false;
  bool color_ = false;
  std::size_t width_ = kDefaultWidth;
};

/// The line above a part of a page, with an empty one before it; the note is dim.
std::string heading(const Terminal& terminal, std::string_view text, std::string_view note = {});

}  // namespace cukiln::cli
