// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace cukiln::cli {

namespace {

constexpr std::size_t kLeastWidth = 40;

const char* sequence_of(Ink ink) {
  switch (ink) {
    case Ink::plain: return "";
    case Ink::bold: return "\x1b[1m";
    case Ink::dim: return "\x1b[2m";
    case Ink::red: return "\x1b[31m";
    case Ink::green: return "\x1b[32m";
    case Ink::yellow: return "\x1b[33m";
    case Ink::cyan: return "\x1b[36m";
  }
  return "";
}

}  // namespace

Terminal::Terminal(int descriptor, ColorMode mode)
    : is_terminal_(::isatty(descriptor) == 1),
      color_(mode == ColorMode::always || (mode == ColorMode::automatic && is_terminal_)) {
  struct winsize size = {};
  if (is_terminal_ && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    width_ = std::max<std::size_t>(size.ws_col, kLeastWidth);
  }
}

std::string Terminal::paint(Ink ink, std::string_view text) const {
  if (!color_ || ink == Ink::plain || text.empty()) {
    return std::string(text);
  }
  return std::string(sequence_of(ink)).append(text).append("\x1b[0m");
}

std::string heading(const Terminal& terminal, std::string_view text, std::string_view note) {
  return "\n" + terminal.paint(Ink::bold, text) +
         (note.empty() ? "" : "  " + terminal.paint(Ink::dim, note)) + "\n";
}

}  // namespace cukiln::cli
