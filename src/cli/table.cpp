// SPDX-License-Identifier: Apache-2.0
#include "cli/table.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kGap = 2;

}  // namespace

void Table::add(std::vector<Cell> row) {
  assert(row.size() <= columns_.size());
  for (Cell& cell : row) {
    cell.text = printable(cell.text);
  }
  row.resize(columns_.size(), Cell(""));
  rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widths(std::size_t available) const {
  std::vector<std::size_t> widths;
  std::size_t total = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) {
      width = std::max(width, display_width(row[c].text));
    }
    widths.push_back(width);
    total += width + (c == 0 ? 0 : kGap);
  }
  while (total > available) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].flexible && widths[c] > columns_[c].min_width &&
          (widest == columns_.size() || widths[c] > widths[widest])) {
        widest = c;
      }
    }
    if (widest == columns_.size()) {
      break;  // too long a line is better than a truncated number
    }
    --widths[widest];
    --total;
  }
  return widths;
}

std::string Table::line(const std::vector<Cell>& row, const std::vector<std::size_t>& widths,
                        const Terminal& terminal, std::size_t indent) const {
  std::size_t last = 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    last = row[c].text.empty() ? last : c;
  }
  std::string out(indent, ' ');
  for (std::size_t c = 0; c <= last && c < row.size(); ++c) {
    std::string text = shorten(row[c].text, std::max(widths[c], std::size_t{1}));
    const std::size_t columns = display_width(text);
    const std::size_t fill = widths[c] > columns ? widths[c] - columns : 0;
    const bool right = columns_[c].align == Column::Align::right;
    out.append((c == 0 ? 0 : kGap) + (right ? fill : 0), ' ');
    out += terminal.paint(row[c].color, text);
    if (!right && c != last) {
      out.append(fill, ' ');
    }
  }
  return out;
}

std::vector<std::string> Table::lines(const Terminal& terminal, std::size_t indent) const {
  // A program that reads the table needs the whole text.
  const std::size_t available =
      terminal.is_terminal() ? terminal.width() : std::numeric_limits<std::size_t>::max();
  const auto widths = this->widths(available > indent ? available - indent : 1);
  std::vector<std::string> out;
  std::vector<Cell> heading;
  bool has_heading = false;
  for (const Column& column : columns_) {
    heading.emplace_back(column.title, Color::bold);
    has_heading = has_heading || !column.title.empty();
  }
  if (has_heading) {
    out.push_back(line(heading, widths, terminal, indent));
  }
  for (const auto& row : rows_) {
    out.push_back(line(row, widths, terminal, indent));
  }
  return out;
}

std::string Table::text(const Terminal& terminal, std::size_t indent) const {
  std::string out;
  for (const std::string& line : lines(terminal, indent)) {
    out += line + "\n";
  }
  return out;
}

}  // namespace cukiln::cli
