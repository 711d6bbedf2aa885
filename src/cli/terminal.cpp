// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "cli/application.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kMinWidth = 40;

const char* sequence_of(Color color) {
  switch (color) {
    case Color::plain: return "";
    case Color::bold: return "\x1b[1m";
    case Color::dim: return "\x1b[2m";
    case Color::red: return "\x1b[31m";
    case Color::green: return "\x1b[32m";
    case Color::yellow: return "\x1b[33m";
    case Color::cyan: return "\x1b[36m";
  }
  return "";
}

}  // namespace

Terminal::Terminal(int descriptor, ColorMode mode)
    : is_terminal_(::isatty(descriptor) == 1),
      can_redraw_(is_terminal_ && inherited_variable("TERM") != "dumb"),
      has_color_(mode == ColorMode::always || (mode == ColorMode::automatic && can_redraw_ &&
                                               inherited_variable("NO_COLOR").empty())) {
  struct winsize size = {};
  if (is_terminal_ && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    width_ = std::max<std::size_t>(size.ws_col, kMinWidth);
  }
}

std::string Terminal::paint(Color color, std::string_view text) const {
  if (!has_color_ || color == Color::plain || text.empty()) {
    return std::string(text);
  }
  return std::string(sequence_of(color)).append(text).append("\x1b[0m");
}

std::string heading(const Terminal& terminal, std::string_view text, std::string_view note) {
  return "\n" + terminal.paint(Color::bold, text) +
         (note.empty() ? "" : "  " + terminal.paint(Color::dim, note)) + "\n";
}

}  // namespace cukiln::cli
