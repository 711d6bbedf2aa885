// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/terminal.hpp"

namespace cukiln::cli {

struct Cell {
  Cell(std::string shown, Color paint = Color::plain)  // NOLINT: a text is a cell
      : text(std::move(shown)), ink(paint) {}
  Cell(const char* shown) : text(shown) {}  // NOLINT
  std::string text;
  Color ink = Color::plain;
};

struct Column {
  enum class Align { left, right };
  std::string title;  ///< empty in every column: the table has no heading
  Align align = Align::left;
  bool flexible = false;  ///< gives way when the table is too wide for the terminal
  std::size_t least = 8;  ///< columns that a flexible one keeps
};

/// Rows in aligned columns, on a terminal as wide as that at most. Cells are escaped here.
/// Right-aligned columns are for numbers. The last column is not padded.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<Cell> row);
  bool empty() const noexcept { return rows_.empty(); }

  /// The heading (when there is one), then a line for each row, without line ends.
  std::vector<std::string> lines(const Terminal& terminal, std::size_t indent = 0) const;
  std::string text(const Terminal& terminal, std::size_t indent = 0) const;

 private:
  std::vector<std::size_t> widths(std::size_t available) const;
  std::string line(const std::vector<Cell>& row, const std::vector<std::size_t>& widths,
                   const Terminal& terminal, std::size_t indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace cukiln::cli
