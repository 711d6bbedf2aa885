// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cukiln::cli {

enum class ColorMode { automatic, always, never };

enum class Color { plain, bold, dim, red, green, yellow, cyan };

/// The properties of the terminal, file or pipe to which a stream writes.
class Terminal {
 public:
  static constexpr std::size_t kDefaultWidth = 80;

  Terminal() = default;
  Terminal(int descriptor, ColorMode mode);

  bool is_terminal() const noexcept { return is_terminal_; }
  /// True if a line can be erased and written again: not if TERM is `dumb`.
  bool can_redraw() const noexcept { return can_redraw_; }
  /// True on request, else where lines can be redrawn and NO_COLOR is empty (https://no-color.org).
  bool has_color() const noexcept { return has_color_; }
  /// Returns the columns of the terminal, or 80 if there is none.
  std::size_t width() const noexcept { return width_; }

  /// Returns the text in a color, or as it is if the stream has no colors.
  std::string paint(Color color, std::string_view text) const;

 private:
  bool is_terminal_ = false;
  bool can_redraw_ = false;
  bool has_color_ = false;
  std::size_t width_ = kDefaultWidth;
};

/// Returns an empty line and a bold heading, with a dim note beside it.
std::string heading(const Terminal& terminal, std::string_view text, std::string_view note = {});

}  // namespace cukiln::cli
