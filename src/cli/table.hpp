// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/terminal.hpp"

namespace cukiln::cli {

struct Cell {
  Cell(std::string shown, Color shown_in = Color::plain)  // NOLINT: a text is a cell
      : text(std::move(shown)), color(shown_in) {}
  Cell(const char* shown) : text(shown) {}  // NOLINT
  std::string text;
  Color color = Color::plain;
};

struct Column {
  enum class Align { left, right };
  std::string title;  ///< a table whose titles are all empty has no heading
  Align align = Align::left;
  bool flexible = false;      ///< shrinks if the table is too wide for the terminal
  std::size_t min_width = 8;  ///< of a flexible column
};

/// Rows in aligned columns, at most as wide as the terminal; never cut if there is none. Escapes
/// control characters in cells. Right-aligned columns are for numbers. The last column is not
/// padded.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<Cell> row);
  bool empty() const noexcept { return rows_.empty(); }

  /// Adds a row of at most as many cells as there are columns.
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
