// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.hpp"

namespace cukiln::ops {

inline constexpr double kUsPerSecond = 1e6;

/// Builds Prometheus' text format. The samples of one metric must be added one after the other; the
/// help text of the first is used.
class Exposition {
 public:
  template <class Number>
  void add(std::string_view type, std::string_view metric, std::string_view help,
           std::string_view labels, Number value) {
    const std::string name = fmt::format("{}{}", prefix_of(metric), metric);
    begin(type, name, metric, help);
    text_ += labels.empty() ? fmt::format("{} {}\n", name, value)
                            : fmt::format("{}{{{}}} {}\n", name, labels, value);
  }
  /// `buckets`: upper bounds in seconds, with cumulative counts.
  void histogram(std::string_view metric, std::string_view help,
                 const std::vector<std::pair<double, std::uint64_t>>& buckets, double sum,
                 std::uint64_t count, const std::string& labels = {}) {
    begin("histogram", fmt::format("cukiln_{}", metric), metric, help);
    const std::string before = labels.empty() ? "" : labels + ",";
    const std::string in_braces = labels.empty() ? "" : "{" + labels + "}";
    for (const auto& [bound, cumulative] : buckets) {
      text_ +=
          fmt::format("cukiln_{}_bucket{{{}le=\"{}\"}} {}\n", metric, before, bound, cumulative);
    }
    text_ += fmt::format(
        "cukiln_{0}_bucket{{{1}le=\"+Inf\"}} {2}\ncukiln_{0}_sum{3} {4}\ncukiln_{0}_count{3} {2}\n",
        metric, before, count, in_braces, sum);
  }
  /// Adds the base/histogram.hpp histogram `name`, a `Times`, whose counters `counter(name)`
  /// returns.
  template <class Times, class Counter>
  void times(std::string_view metric, std::string_view help, const std::string& labels,
             std::string_view name, const Counter& counter) {
    const std::vector<std::string> names = Times::names(name);
    std::vector<std::pair<double, std::uint64_t>> buckets;
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < Times::kBounds.size(); ++i) {
      cumulative += counter(names[i]);
      buckets.emplace_back(Times::kBounds[i] / kUsPerSecond, cumulative);
    }
    histogram(metric, help, buckets, static_cast<double>(counter(names.back())) / kUsPerSecond,
              cumulative + counter(names[Times::kBounds.size()]), labels);
  }
  void summary(std::string_view metric, std::string_view help, double sum, std::uint64_t count) {
    text_ += fmt::format(
        "# HELP cukiln_{0} {1}\n# TYPE cukiln_{0} summary\ncukiln_{0}_sum {2}\ncukiln_{0}_count "
        "{3}\n",
        metric, help, sum, count);
  }
  template <class Number>
  void gauge(std::string_view metric, std::string_view help, Number value,
             std::string_view labels = {}) {
    add("gauge", metric, help, labels, value);
  }
  template <class Number>
  void counter(std::string_view metric, std::string_view help, Number value,
               std::string_view labels = {}) {
    add("counter", metric, help, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  /// Writes help and type, once for each metric.
  void begin(std::string_view type, const std::string& name, std::string_view metric,
             std::string_view help) {
    if (metric != last_) {
      text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
      last_ = metric;
    }
  }
  /// Prometheus' standard process metrics have no prefix.
  static std::string_view prefix_of(std::string_view metric) {
    return metric.substr(0, 8) == "process_" ? "" : "cukiln_";
  }

  std::string text_;
  std::string last_;
};

/// Formats `NAME="VALUE"`, escaped.
inline std::string label(std::string_view name, std::string_view value) {
  std::string out(name);
  out += "=\"";
  for (const char c : value) {
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + '"';
}

}  // namespace cukiln::ops
